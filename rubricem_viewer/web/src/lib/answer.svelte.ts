// An answer that a page waits for: what is there, what is coming, and why there is none.

import { NoAnswer, ask, isFile, type Parameters } from "./source";

export class Answer<Kind> {
  value = $state.raw<Kind | null>(null);
  problem = $state<string>("");
  isLoading = $state(false);
  #latest = 0;

  /** Asks; an answer that a later question has overtaken is dropped. */
  async load(path: string, parameters: Parameters = {}): Promise<void> {
    const own = ++this.#latest;
    this.isLoading = true;
    try {
      const value = await ask<Kind>(path, parameters);
      if (own !== this.#latest) return;
      if (value !== this.value) this.value = value;
      this.problem = "";
    } catch (cause) {
      if (own !== this.#latest) return;
      this.problem = cause instanceof NoAnswer ? cause.message : `This page failed: ${String(cause)}`;
    } finally {
      if (own === this.#latest) this.isLoading = false;
    }
  }
}

/** Calls again and again while the page is looked at; gives back how to stop. */
export function every(seconds: number, call: () => unknown): () => void {
  if (isFile) return () => undefined;
  const timer = setInterval(() => document.visibilityState === "visible" && call(), seconds * 1000);
  return () => clearInterval(timer);
}
