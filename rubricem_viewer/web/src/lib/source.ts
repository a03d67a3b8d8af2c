// Where answers come from: the server, or the file that the page itself is.


export type Parameters = Record<string, string | number | undefined | Array<string>>;

export interface Embedded {
  made: string;
  answers: Record<string, unknown>;
}

/** Why there is no answer, as one sentence for a person. */
export class NoAnswer extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

const DATA = document.getElementById("recorded");
export const embedded: Embedded | null = DATA ? (JSON.parse(DATA.textContent ?? "null") as Embedded) : null;
/** Whether this page is a file by itself, with a sample of a run in it. */
export const isFile = embedded !== null;

const TOKEN_KEY = "rubricem-token";
const kept = new Map<string, { tag: string; answer: unknown }>();
const MOST_KEPT = 60;

/** Takes the token out of the address, where it would stay in the history. */
export function takeToken(): void {
  const found = /^#token=([^&]+)(?:&(.*))?$/.exec(location.hash);
  if (!found?.[1]) return;
  sessionStorage.setItem(TOKEN_KEY, decodeURIComponent(found[1]));
  history.replaceState(null, "", location.pathname + location.search + (found[2] ? `#${found[2]}` : ""));
}

export function pathWith(path: string, parameters: Parameters = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (Array.isArray(value)) value.forEach((one) => search.append(name, one));
    else if (value !== undefined && value !== "") search.set(name, String(value));
  }
  const text = search.toString();
  return text ? `${path}?${text}` : path;
}

/** The answer to a path of the contract; in a file, of the path alone, whatever the parameters. */
export async function ask<Answer>(path: string, parameters: Parameters = {}): Promise<Answer> {
  if (embedded) {
    const answer = embedded.answers[pathWith(path, parameters)] ?? embedded.answers[path];
    if (answer === undefined) throw new NoAnswer(404, "This page is a sample of its run, and this is not in it.");
    return answer as Answer;
  }
  return await fetched<Answer>(pathWith(path, parameters));
}

export async function post<Answer>(path: string, body: unknown): Promise<Answer> {
  const reply = await fetch(`api${path}`, {
    method: "POST",
    headers: { ...credentials(), "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  return await read<Answer>(reply);
}

async function fetched<Answer>(path: string): Promise<Answer> {
  const old = kept.get(path);
  const headers: Record<string, string> = credentials();
  if (old) headers["If-None-Match"] = old.tag;
  const reply = await fetch(`api${path}`, { headers }).catch(() => {
    throw new NoAnswer(0, "The server does not answer. Is rubricem view still running?");
  });
  if (reply.status === 304 && old) return old.answer as Answer;
  const answer = await read<Answer>(reply);
  const tag = reply.headers.get("ETag");
  if (tag) keep(path, tag, answer);
  return answer;
}

async function read<Answer>(reply: Response): Promise<Answer> {
  if (reply.ok) return (await reply.json()) as Answer;
  const problem = (await reply.json().catch(() => null)) as { message?: string } | null;
  if (reply.status === 401) {
    throw new NoAnswer(401, "The token is missing or wrong. Open the address that rubricem view printed.");
  }
  throw new NoAnswer(reply.status, problem?.message ?? `The server answered ${reply.status}.`);
}

function keep(path: string, tag: string, answer: unknown): void {
  kept.delete(path);
  kept.set(path, { tag, answer });
  const oldest = kept.keys().next().value;
  if (kept.size > MOST_KEPT && oldest !== undefined) kept.delete(oldest);
}

function credentials(): Record<string, string> {
  return { Authorization: `Bearer ${sessionStorage.getItem(TOKEN_KEY) ?? ""}` };
}
