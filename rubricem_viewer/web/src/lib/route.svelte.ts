// Which page is shown: the address after the #, as a path and parameters.

import { pathWith, type Parameters } from "./source";

class Route {
  path = $state<Array<string>>([]);
  parameters = $state<URLSearchParams>(new URLSearchParams());

  read(): void {
    const [path = "", search = ""] = location.hash.replace(/^#/, "").split("?");
    this.path = path.split("/").filter(Boolean).map(decodeURIComponent);
    this.parameters = new URLSearchParams(search);
  }

  /** A parameter, or "". */
  get(name: string): string {
    return this.parameters.get(name) ?? "";
  }

  /** Changes parameters of this page without a new entry in the history. */
  set(changes: Parameters): void {
    const all: Parameters = {};
    for (const name of new Set(this.parameters.keys())) all[name] = this.parameters.getAll(name);
    history.replaceState(null, "", `#/${pathWith(this.path.map(encodeURIComponent).join("/"), { ...all, ...changes })}`);
    this.read();
  }
}

export const route = new Route();

/** An address of this page. */
export function to(path: Array<string | number>, parameters: Parameters = {}): string {
  return `#/${pathWith(path.map((part) => encodeURIComponent(String(part))).join("/"), parameters)}`;
}
