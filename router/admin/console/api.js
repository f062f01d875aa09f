// Talks to the router that served this page, and to nothing else.

const BASE = "/admin/v1";
export const session = { signed_in: false, role: "none", csrf_token: null };

export class Failure extends Error {
  constructor(status, error) {
    super(error?.message ?? `The router answered ${status}.`);
    this.status = status;
    this.code = error?.code ?? null;
  }
}

async function call(method, path, body, headers = {}) {
  const sent = { ...headers };
  if (body !== undefined) sent["Content-Type"] = "application/json";
  if (method !== "GET" && session.csrf_token) sent["X-CSRF-Token"] = session.csrf_token;
  let answer;
  try {
    answer = await fetch(path, { method, headers: sent, body: body === undefined ? undefined : JSON.stringify(body), credentials: "same-origin", redirect: "error" });
  } catch {
    throw new Failure(0, { message: "The router does not answer." });
  }
  return answer;
}

async function ask(method, path, body, headers) {
  const answer = await call(method, BASE + path, body, headers);
  const text = await answer.text();
  const value = text ? JSON.parse(text) : null;
  if (!answer.ok) {
    if (answer.status === 401 && path !== "/session") window.dispatchEvent(new Event("isthmus:signed-out"));
    throw new Failure(answer.status, value?.error);
  }
  return value;
}

export const get = (path) => ask("GET", path);
export const post = (path, body, headers) => ask("POST", path, body, headers);
export const put = (path) => ask("PUT", path);
export const remove = (path) => ask("DELETE", path);

export async function whoAmI() {
  Object.assign(session, { csrf_token: null, role: "none" }, await get("/session"));
  return session;
}
export async function signIn(key) { Object.assign(session, await post("/session", { key })); }
export async function signOut() { await remove("/session"); Object.assign(session, { signed_in: false, csrf_token: null }); }

// Streams one chat answer: calls `onText` with each piece, returns what headers and usage said.
export async function chat(body, headers, onText, signal) {
  const sent = { "Content-Type": "application/json", ...headers };
  if (session.csrf_token) sent["X-CSRF-Token"] = session.csrf_token;
  const began = performance.now();
  const answer = await fetch("/v1/chat/completions", {
    method: "POST", headers: sent, body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }), credentials: "same-origin", redirect: "error", signal,
  });
  const facts = { status: answer.status, first_ms: null, total_ms: null, tokens: null, finish: null };
  for (const name of ["tier", "backend", "class", "reason", "decision-id"]) facts[name.replace("-", "_")] = answer.headers.get(`x-isthmus-${name}`);
  if (!answer.ok) {
    const failure = new Failure(answer.status, (await answer.json().catch(() => null))?.error);
    failure.facts = facts;
    throw failure;
  }
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
      const chunk = JSON.parse(line.slice(6));
      if (chunk.error) throw Object.assign(new Failure(200, chunk.error), { facts });
      const piece = chunk.choices?.[0]?.delta?.content;
      facts.finish = chunk.choices?.[0]?.finish_reason ?? facts.finish;
      facts.tokens = chunk.usage?.completion_tokens ?? facts.tokens;
      if (piece) {
        facts.first_ms ??= performance.now() - began;
        onText(piece);
      }
    }
  }
  facts.total_ms = performance.now() - began;
  return facts;
}
