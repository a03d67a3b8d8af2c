// Where the numbers of a chart lie on the paper.

import type { Curve } from "./api";

export interface Range {
  low: number;
  high: number;
}

export const WIDE = 460;
export const HIGH = 220;
export const EDGE = { left: 44, right: 12, top: 10, bottom: 26 };

/** 1, 2 or 5 times a power of ten, such that about `steps` of it lead from low to high. */
export function niceStep({ low, high }: Range, steps = 4): number {
  const raw = (high - low) / steps;
  const power = 10 ** Math.floor(Math.log10(raw));
  return ([1, 2, 5, 10].find((factor) => power * factor >= raw * 0.999) ?? 10) * power;
}

/** Round numbers from low to high, `least` apart or more. */
export function niceTicks(range: Range, steps = 4, least = 0): Array<number> {
  const step = Math.max(niceStep(range, steps), least);
  const first = Math.ceil(range.low / step - 1e-9);
  const last = Math.floor(range.high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, place) => Number(((first + place) * step).toPrecision(12)));
}

/** From a round number below the least value to one above the greatest. */
export function rangeOfValues(curves: Array<Curve>, including: Array<number>): Range {
  const range = widened([...curves.flatMap((one) => [...one.y, ...one.low, ...one.high]), ...including]);
  const step = niceStep(range);
  return { low: Math.floor(range.low / step + 1e-9) * step, high: Math.ceil(range.high / step - 1e-9) * step };
}

export function rangeOfSteps(curves: Array<Curve>): Range {
  return widened(curves.flatMap((one) => one.x));
}

/** A single value gets room on both sides, or it would have no place. */
function widened(values: Array<number>): Range {
  const low = values.reduce((least, one) => Math.min(least, one), Infinity);
  const high = values.reduce((most, one) => Math.max(most, one), -Infinity);
  const room = low === high ? Math.abs(low) * 0.1 || 0.5 : 0;
  return { low: low - room, high: high + room };
}

export function across(x: number, range: Range): number {
  return EDGE.left + ((x - range.low) / (range.high - range.low)) * (WIDE - EDGE.left - EDGE.right);
}

export function down(y: number, range: Range): number {
  return HIGH - EDGE.bottom - ((y - range.low) / (range.high - range.low)) * (HIGH - EDGE.top - EDGE.bottom);
}

export function line(curve: Curve, x: Range, y: Range): string {
  return curve.x.map((at, i) => `${across(at, x).toFixed(1)},${down(curve.y[i] ?? 0, y).toFixed(1)}`).join(" ");
}

/** There above, and back below. */
export function band(curve: Curve, x: Range, y: Range): string {
  const edge = (values: Array<number>) => values.map((one, i) => `${across(curve.x[i] ?? 0, x).toFixed(1)},${down(one, y).toFixed(1)}`);
  return [...edge(curve.high), ...edge(curve.low).reverse()].join(" ");
}
