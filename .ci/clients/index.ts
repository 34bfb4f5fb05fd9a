/** Assay's REST API: `await new Assay(url, token).advise(workload)`. Every other call: `assay.http.GET("/api/v1/...")`. */
import createClient, { type Client } from "openapi-fetch";
import type { components, paths } from "./schema.js";

type Schemas = components["schemas"];
export type { components, paths };
export type Advice = Schemas["Advice"];
export type Answer = Schemas["Answer"];
export type Estimate = Schemas["EstimateResponse"];
export type Workload = Schemas["Workload"];
export type EstimateRequest = Schemas["EstimateRequest"];
export type FieldError = Schemas["Error"];

const TRIES = 5;
const MOST_PAUSE_S = 60;

/** The server refused a call. `errors` has the key path, the message and what is allowed of each invalid field. */
export class Problem extends Error {
  constructor(readonly status: number, detail: string, readonly errors: FieldError[] = []) {
    super([detail, ...errors.map((e) => `${e.field || "workload"}: ${e.message}`)].join("\n"));
  }
}

const sleep = (seconds: number) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));

function pauseOf(response: Response, otherwise: number): number {
  const text = response.headers.get("Retry-After") ?? "";
  return /^\d+$/.test(text) ? Math.min(Number(text), MOST_PAUSE_S) : otherwise;
}

/** fetch that repeats calls which are refused with 429 or 503, after as long as the server says. */
async function patient(request: Request): Promise<Response> {
  for (let tried = 1; ; tried++) {
    const response = await fetch(request.clone());
    if (![429, 503].includes(response.status) || tried === TRIES) return response;
    await sleep(pauseOf(response, 2));
  }
}

/** What a call returned, as a type of the document: openapi-fetch derives its own. Throws Problem if it was refused. */
function dataOf<T>(found: { data?: unknown; error?: unknown; response: Response }): T {
  if (found.data !== undefined) return found.data as T;
  const said = (found.error ?? {}) as Partial<Schemas["Problem"]>;
  throw new Problem(found.response.status, said.detail || said.title || found.response.statusText, said.errors);
}

export class Assay {
  readonly http: Client<paths>;

  constructor(readonly url: string, token: string) {
    const headers = token ? { Authorization: `Bearer ${token}` } : undefined;
    this.http = createClient<paths>({ baseUrl: url.replace(/\/+$/, ""), headers, fetch: patient });
  }

  /** The finished advice to a workload, with its typed result. key: an idempotency key of your own. */
  async advise(workload: Workload, timeoutS = 900, key: string = crypto.randomUUID()): Promise<Advice & { result: Answer }> {
    const header = { "Idempotency-Key": key };
    const found = await this.http.POST("/api/v1/advice", { body: workload as never, params: { header } });
    const queued = dataOf<Advice>(found);
    return this.answer(queued.id, timeoutS);
  }

  /** An advice, once it is finished. */
  async answer(id: string, timeoutS = 900): Promise<Advice & { result: Answer }> {
    const end = Date.now() + 1000 * timeoutS;
    for (;;) {
      const found = await this.http.GET("/api/v1/advice/{id}", { params: { path: { id }, query: { wait: 30 } } });
      const advice = dataOf<Advice>(found);
      if (advice.state === "done" && advice.result) return { ...advice, result: advice.result };
      if (advice.state === "failed" || advice.state === "cancelled" || Date.now() > end)
        throw new Error(`Advice ${id} is ${advice.state}. ${advice.error ?? ""}`.trim());
      await sleep(pauseOf(found.response, 1));
    }
  }

  /** One deployment or training step. */
  async estimate(deployment: EstimateRequest): Promise<Estimate> {
    return dataOf(await this.http.POST("/api/v1/estimate", { body: deployment as never }));
  }
}
