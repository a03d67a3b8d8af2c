// What the parts of a trajectory's page share: numbers of snippets and verdicts, and what is looked at just now.

import type { TrajectoryView, VerdictView, ViolationView } from "./api";
import type { Mark } from "./passage";

export interface Numbered {
  number: number;
  verdict: VerdictView;
}

export class ReadingState {
  /** The verdict under the pointer, and the one whose passage was asked for, by number; 0 for none. */
  hovered = $state(0);
  asked = $state(0);
  readonly verdicts: Array<Numbered>;
  readonly references = new Map<string, number>();
  readonly #marks = new Map<number, Array<Mark>>();
  readonly #violations = new Map<number, Array<ViolationView>>();

  constructor(view: TrajectoryView) {
    const all = view.stages.flatMap((stage) => stage.verdicts);
    this.verdicts = all.map((verdict, place) => ({ number: place + 1, verdict }));
    for (const { number, verdict } of this.verdicts) {
      for (const { element, start, end } of verdict.passages) add(this.#marks, element, { start, end, verdict: number });
    }
    for (const violation of view.violations) if (violation.passage) add(this.#violations, violation.passage.element, violation);
    const cited = view.elements.flatMap((element) => element.citations.flatMap((citation) => citation.ids));
    for (const id of cited) if (!this.references.has(id)) this.references.set(id, this.references.size + 1);
  }

  isLit(verdict: number): boolean {
    return verdict === this.hovered || verdict === this.asked;
  }

  marks(element: number): Array<Mark> {
    return this.#marks.get(element) ?? [];
  }

  violations(element: number): Array<ViolationView> {
    return this.#violations.get(element) ?? [];
  }

  ofStage(stage: string): Array<Numbered> {
    return this.verdicts.filter(({ verdict }) => verdict.rubric.stage === stage);
  }
}

function add<Value>(groups: Map<number, Array<Value>>, key: number, value: Value): void {
  const group = groups.get(key);
  if (group) group.push(value);
  else groups.set(key, [value]);
}

/** Brings a part of the page into view, opens what folds it away, and hands it the keyboard. */
export function goTo(id: string): void {
  const place = document.getElementById(id);
  if (!place) return;
  for (let fold = place.closest("details"); fold; fold = fold.parentElement?.closest("details") ?? null) fold.open = true;
  place.scrollIntoView({ block: "center" });
  place.focus({ preventScroll: true });
}
