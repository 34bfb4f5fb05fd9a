/** What a program with the TypeScript client does; test_typescript.py compiles and runs it. Prints JSON. */
import { Assay, AssayError, Problem, isDeployment, type Estimate, type Workload } from "assay-client";

declare const process: { argv: string[] };
const [url = "", token = "", busy = "", gone = ""] = process.argv.slice(2);

const chat: Workload = {
  name: "help-desk",
  model: "meta-llama/Llama-3.1-8B",
  traffic: { input_tokens: 800, output_tokens: 200, requests_per_s: 2 },
  slo: { ttft_ms_p95: 1500, tpot_ms_p95: 60 },
  constraints: { accelerators: { allow: ["l40s"] }, frameworks: { allow: ["vllm"] }, acquisition: ["rent"] },
  variants: "no",
};

async function refusal(call: Promise<unknown>): Promise<Record<string, unknown>> {
  try {
    await call;
  } catch (error) {
    if (error instanceof Problem) return { status: error.status, errors: error.errors, said: error.message };
    if (error instanceof AssayError) return { said: error.message };
    throw error;
  }
  throw new Error("nothing was refused");
}

const assay = new Assay(url, token);
const advice = await assay.advise(chat, 60, "one-key");
const again = await assay.advise(chat, 60, "one-key");
const best = advice.result.recommendations.find(isDeployment);
const deployment = { model: "meta-llama/Llama-3.1-8B", accelerator: "l40s", weights: "fp8", isl: 800, osl: 200, concurrency: 8 };
const estimate: Estimate = await assay.estimate(deployment);
const listed = await assay.http.GET("/api/v1/accelerators", { params: { query: { search: "l40s" } } });
const after429 = new Assay(busy, token);

console.log(
  JSON.stringify({
    id: advice.id,
    sameId: again.id,
    verdict: advice.result.verdict,
    best: best && { accelerator: best.accelerator, usd: best.usd_per_month, weightsGib: best.memory.weights_gib },
    fits: estimate.fits,
    slugs: listed.data?.results.map((row) => row.slug),
    invalid: await refusal(assay.advise({ ...chat, traffic: { input_tokens: -1 } })),
    unknown: await refusal(assay.answer("00000000-0000-0000-0000-000000000000")),
    token: await refusal(new Assay(url, "aat_wrong").answer(advice.id)),
    afterPause: (await after429.estimate(deployment)).fits,
    impatient: await refusal(new Assay(busy, token, { tries: 1 }).estimate(deployment)),
    page: await refusal(after429.answer("a-page")),
    gateway: await refusal(after429.answer("a-gateway")),
    late: await refusal(after429.answer("late", 0)),
    failed: await refusal(after429.answer("failed")),
    gone: await refusal(new Assay(gone, token, { tries: 1 }).answer(advice.id)),
    address: await refusal((async () => new Assay("assay.example", token))()),
  }),
);
