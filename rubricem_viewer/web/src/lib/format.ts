// Numbers and names as people read them.

export const MINUS = "\u2212";
export const NOTHING = "\u2013";

export function score(value: number | null | undefined): string {
  return value === null || value === undefined ? NOTHING : value.toFixed(2).replace("-", MINUS);
}

export function signed(value: number | null | undefined, digits = 2): string {
  if (value === null || value === undefined) return NOTHING;
  const text = Math.abs(value).toFixed(digits);
  return Number(text) === 0 ? text : (value < 0 ? MINUS : "+") + text;
}

export function percent(value: number | null | undefined, digits = 0): string {
  return value === null || value === undefined ? NOTHING : `${(value * 100).toFixed(digits).replace("-", MINUS)} %`;
}

export function count(value: number): string {
  return value.toLocaleString("en-GB");
}

/** A number with its noun: "1 lesson", "3 lessons". */
export function counted(value: number, noun: string, plural = `${noun}s`): string {
  return `${count(value)} ${value === 1 ? noun : plural}`;
}

export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return NOTHING;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function money(dollars: number | null | undefined): string {
  return dollars === null || dollars === undefined ? NOTHING : `$${dollars.toFixed(dollars < 1 ? 3 : 2)}`;
}

export function ago(unixSeconds: number, now = Date.now() / 1000): string {
  const passed = Math.max(0, now - unixSeconds);
  if (passed < 90) return "just now";
  if (passed < 86_400) return `${duration(passed)} ago`;
  return new Date(unixSeconds * 1000).toISOString().slice(0, 10);
}

/** A name of the contract as words: "state_evaluation" is "state evaluation". */
export function words(name: string): string {
  return name.replaceAll("_", " ");
}

export function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** The beginning of a long text, cut between words where there are some. */
export function beginning(text: string, most: number): string {
  if (text.length <= most) return text;
  const cut = text.slice(0, most);
  return `${cut.slice(0, Math.max(cut.lastIndexOf(" "), most - 20))}\u2026`;
}

/** A text without the tags of the scaffold, for an excerpt. */
export function untagged(text: string): string {
  return text.replace(/<\/?[a-z_]+(?:\s[^<>]*)?>?/gi, " ").replace(/ {2,}/g, " ").trim();
}

/** A tick of an axis or a value of a chart, as short as it can be. */
export function short(value: number, digits = 4): string {
  return Number(value.toPrecision(digits)).toString().replace("-", MINUS);
}

/** A link that may be followed: http or https, or nothing. */
export function safeLink(url: string): string | null {
  return /^https?:\/\//i.test(url) ? url : null;
}
