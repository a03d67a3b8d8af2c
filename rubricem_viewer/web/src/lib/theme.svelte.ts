// Light or dark: as the system has it, until a person says otherwise.

const KEY = "rubricem-theme";
export type Theme = "system" | "light" | "dark";
const ORDER: Array<Theme> = ["system", "light", "dark"];

class Chosen {
  theme = $state<Theme>("system");

  restore(): void {
    try {
      const found = ORDER.find((one) => one === localStorage.getItem(KEY));
      if (found) this.#apply(found);
    } catch {
      // A file opened from disk may have no storage; then the choice lasts as long as the page.
    }
  }

  next(): void {
    this.#apply(ORDER[(ORDER.indexOf(this.theme) + 1) % ORDER.length] ?? "system");
    try {
      localStorage.setItem(KEY, this.theme);
    } catch {
      // As above.
    }
  }

  #apply(theme: Theme): void {
    this.theme = theme;
    if (theme === "system") document.documentElement.removeAttribute("data-theme");
    else document.documentElement.setAttribute("data-theme", theme);
  }
}

export const chosen = new Chosen();
