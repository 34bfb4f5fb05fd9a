/** Assay's REST API: `await new Assay(url, token).advise(workload)`. Every other call: `assay.http.GET("/api/v1/...")`. */
import createClient, { type Client } from "openapi-fetch";
import type { components, paths } from "./schema.js";

type Schemas = components["schemas"];
export type { components, paths };
export type Advice = Schemas["Advice"];
export type Answer = Schemas["Answer"];
export type Deployment = Schemas["AnswerOption"];
/** A deployment, a training run or a hosted API. */
export type Option = Answer["recommendations"][number];
export type Estimate = Schemas["EstimateResponse"];
export type Workload = Schemas["Workload"];
export type EstimateRequest = Schemas["EstimateRequest"];
export type FieldError = Schemas["Error"];

export const isDeployment = (option: Option | undefined): option is Deployment =>
  option !== undefined && "capacity_requests_per_s" in option;

const MOST_PAUSE_S = 60;

/** The server does not answer, or the advice failed, was canceled or is late. */
export class AssayError extends Error {}

/** The server refused a call. `errors` has the key path, the message and what is allowed of each invalid field. */
export class Problem extends AssayError {
  constructor(readonly status: number, readonly detail: string, readonly errors: FieldError[] = []) {
    super([detail, ...errors.map(lineOf)].join("\n"));
  }
}

function lineOf({ field, message, allowed }: FieldError): string {
  return `${field || "workload"}: ${message}${allowed ? ` (allowed: ${allowed})` : ""}`;
}

const sleep = (seconds: number) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));

function pauseOf(response: Response, otherwise: number): number {
  const text = response.headers.get("Retry-After") ?? "";
  return /^\d+$/.test(text) ? Math.min(Number(text), MOST_PAUSE_S) : otherwise;
}

/** fetch that repeats calls that get no answer, 429 or 503; after as long as the server says. */
function patient(tries: number): (request: Request) => Promise<Response> {
  return async (request) => {
    for (let tried = 1; ; tried++) {
      try {
        const response = await fetch(request.clone());
        if (![429, 503].includes(response.status) || tried >= tries) return response;
        await sleep(pauseOf(response, 2));
      } catch (error) {
        const { origin } = new URL(request.url);
        if (tried >= tries) throw new AssayError(`${origin} does not answer: ${error}`, { cause: error });
        await sleep(Math.min(2 ** tried, MOST_PAUSE_S));
      }
    }
  };
}

type Found = { data?: unknown; error?: unknown; response: Response };

/** What a call returned, as a type of the document: openapi-fetch derives its own. Throws Problem if it was refused. */
async function dataOf<T>(call: Promise<Found>): Promise<[T, Response]> {
  const { data, error, response } = await call.catch((reason) => {
    throw reason instanceof SyntaxError ? new AssayError(`The answer is not JSON: ${reason.message}`) : reason;
  });
  if (data !== undefined) return [data as T, response];
  const said = (error ?? {}) as Partial<Schemas["Problem"]>;
  const detail = said.detail || said.title || `${response.url} answered ${response.status}.`;
  throw new Problem(response.status, detail, said.errors);
}

export class Assay {
  readonly http: Client<paths>;

  /** tries: of a call that gets no answer, 429 or 503. */
  constructor(readonly url: string, token: string, { tries = 5 } = {}) {
    if (!/^https?:/.test(url)) throw new AssayError("Give the server's address, such as https://assay.example.");
    const headers = token ? { Authorization: `Bearer ${token}` } : undefined;
    this.http = createClient<paths>({ baseUrl: url.replace(/\/+$/, ""), headers, fetch: patient(tries) });
  }

  /** The finished advice to a workload, with its typed result. key: an idempotency key of your own. */
  async advise(workload: Workload, timeoutS = 900, key: string = crypto.randomUUID()): Promise<Advice & { result: Answer }> {
    const params = { header: { "Idempotency-Key": key } };
    const [queued] = await dataOf<Advice>(this.http.POST("/api/v1/advice", { body: workload as never, params }));
    return this.answer(queued.id, timeoutS);
  }

  /** An advice, once it is finished. */
  async answer(id: string, timeoutS = 900): Promise<Advice & { result: Answer }> {
    const end = Date.now() + 1000 * timeoutS;
    for (;;) {
      const params = { path: { id }, query: { wait: Math.max(0, Math.min(30, Math.floor((end - Date.now()) / 1000))) } };
      const [advice, response] = await dataOf<Advice>(this.http.GET("/api/v1/advice/{id}", { params }));
      if (advice.state === "done" && advice.result) return { ...advice, result: advice.result };
      if (advice.state === "failed" || advice.state === "cancelled")
        throw new AssayError(`Advice ${id} is ${advice.state}. ${advice.error ?? ""}`.trim());
      if (Date.now() > end) throw new AssayError(`Advice ${id} is not finished after ${timeoutS} seconds.`);
      await sleep(pauseOf(response, 1));
    }
  }

  /** One deployment or training step. */
  async estimate(deployment: EstimateRequest): Promise<Estimate> {
    return (await dataOf<Estimate>(this.http.POST("/api/v1/estimate", { body: deployment as never })))[0];
  }
}
