// Asking the server. Every failure is an Error with a message for people; an aborted call rejects with AbortError.
//
//   await api.get("filters/designs", { keys: 1e7 }, { signal })
//   await api.post("inspect/file", { name }, { body: file })
//   await api.job("filters/measure", { keys: 1e6 }, { onProgress: (done, total) => …, signal })
//
// `job` starts the work, looks after it until it ends and gives its result; aborting the signal cancels it. While the
// lab has no place for it, it asks again: places of pages that were closed come free after half a minute (jobs.py).

const PATIENCE = 120_000;  // milliseconds that a job waits for its place
const HEADERS = { "X-Evenbins-Lab": "1" };

export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.name = "ApiError";
    this.status = status;
  }
}

function query(parameters) {
  const given = Object.entries(parameters ?? {}).filter(([, value]) => value !== null && value !== undefined);
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return text ? `?${text}` : "";
}

async function ask(method, path, parameters, { signal, keepalive = false, body = null } = {}) {
  let response;
  try {
    response = await fetch(`/api/${path}${query(parameters)}`, {
      method, signal, keepalive, body, headers: method === "GET" ? {} : HEADERS,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The lab does not answer: is `evenbins lab` still running?", 0);
  }
  let answer = null;
  try { answer = await response.json(); } catch (error) { if (error.name === "AbortError") throw error; }
  if (!response.ok) throw new ApiError(answer?.error ?? `The lab answered ${response.status}.`, response.status);
  return answer;
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => { clearTimeout(timer); reject(aborted()); };
    const timer = setTimeout(() => { signal?.removeEventListener("abort", stop); resolve(); }, milliseconds);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

function aborted() {
  return new DOMException("The call was cancelled.", "AbortError");
}

export const api = {
  get: (path, parameters, options) => ask("GET", path, parameters, options),
  post: (path, parameters, options) => ask("POST", path, parameters, options),
  async job(path, parameters, { onProgress, signal } = {}) {
    let job;
    const until = performance.now() + PATIENCE;
    for (let wait = 250; ; wait = Math.min(wait * 1.5, 2000)) {
      try {
        if (signal?.aborted) throw aborted();
        job = await ask("POST", `jobs/${path}`, parameters);  // not abortable: the id is needed to cancel it
        break;
      } catch (error) {
        if (error.status !== 429 || performance.now() > until) throw error;
        await pause(wait, signal);
      }
    }
    const cancel = () => ask("DELETE", `jobs/${job.id}`, {}, { keepalive: true }).catch(() => {});
    try {
      for (let wait = 60; ; wait = Math.min(wait * 1.5, 500)) {
        if (signal?.aborted) throw aborted();
        if (job.state === "done") return job.result;
        if (job.state === "failed") throw new ApiError(job.error, 400);
        if (job.state === "cancelled") throw aborted();
        if (job.progress[1] > 0) onProgress?.(...job.progress);
        await pause(wait, signal);
        job = await ask("GET", `jobs/${job.id}`, {}, { signal });
      }
    } catch (error) {
      if (error.name === "AbortError" && job.state === "running") cancel();
      throw error;
    }
  },
};

// A function that aborts its previous call when called again: `const latest = only(); await latest((signal) => …)`.
// Gives undefined where the call was overtaken.
export function only() {
  let controller = null;
  const run = async (work) => {
    controller?.abort();
    const mine = new AbortController();
    controller = mine;
    try {
      const found = await work(mine.signal);
      return mine.signal.aborted ? undefined : found;
    } catch (error) {
      if (mine.signal.aborted) return undefined;
      throw error;
    }
  };
  run.abort = () => controller?.abort();
  return run;
}
