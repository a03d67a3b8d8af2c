// The stages of a run: their names come with its scores, in order, and their colours go by that order.

import type { RunCard } from "./api";

export type StageScores = RunCard["scores"];

export function stagesOf(scores: StageScores | undefined): Array<string> {
  return Object.keys(scores ?? {});
}

/** The class of a stage's colour; what is in no stage is grey. */
export function hue(stages: ReadonlyArray<string>, stage: string): string {
  const place = stages.indexOf(stage);
  return place < 0 ? "s-none" : `s${place}`;
}

/** The score of the last stage, whose block is the answer. */
export function lastScore(scores: StageScores): number | null {
  return Object.values(scores).at(-1) ?? null;
}
