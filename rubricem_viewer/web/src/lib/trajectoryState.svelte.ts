// What the parts of a trajectory's page share: numbers of snippets and scores, and what is looked at just now.

import type { TrajectoryView, ScoreView, ViolationView } from "./api";
import type { Quotation } from "./passage";

export interface Numbered {
  number: number;
  score: ScoreView;
}

export class TrajectoryState {
  /** The score under the pointer, and the one whose passage was asked for, by number; 0 for none. */
  hovered = $state(0);
  asked = $state(0);
  readonly scores: Array<Numbered>;
  readonly references = new Map<string, number>();
  readonly #quotations = new Map<number, Array<Quotation>>();
  readonly #violations = new Map<number, Array<ViolationView>>();

  constructor(view: TrajectoryView) {
    const all = view.stages.flatMap((stage) => stage.scores);
    this.scores = all.map((score, index) => ({ number: index + 1, score }));
    for (const { number, score } of this.scores) {
      for (const { element, start, end } of score.passages) add(this.#quotations, element, { start, end, number });
    }
    for (const violation of view.violations) if (violation.passage) add(this.#violations, violation.passage.element, violation);
    const cited = view.elements.flatMap((element) => element.citations.flatMap((citation) => citation.ids));
    for (const id of cited) if (!this.references.has(id)) this.references.set(id, this.references.size + 1);
  }

  isLit(number: number): boolean {
    return number === this.hovered || number === this.asked;
  }

  quotations(element: number): Array<Quotation> {
    return this.#quotations.get(element) ?? [];
  }

  violations(element: number): Array<ViolationView> {
    return this.#violations.get(element) ?? [];
  }

  ofStage(stage: string): Array<Numbered> {
    return this.scores.filter(({ score }) => score.rubric.stage === stage);
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
