// A text in runs: which of them are cited claims, which of them scores quote, and what is left out.

import type { CitationView } from "./api";

export interface Quotation {
  start: number;
  end: number;
  /** The number under which the score stands in the margin. */
  number: number;
}

export interface Run {
  text: string;
  scores: Array<number>;
  citation: CitationView | null;
  /** The last run of its citation: the references follow it. */
  endsCitation: boolean;
}

interface Placed {
  citation: CitationView;
  start: number;
  end: number;
}

/** The runs of [from, to) of a text. The tags of citations are left out; their claims stay. */
export function runs(text: string, from: number, to: number, citations: Array<CitationView>, quotations: Array<Quotation>): Array<Run> {
  const claims = citations.map((citation) => claimOf(text, citation));
  const edges = new Set([from, to]);
  for (const citation of citations) edges.add(citation.start).add(citation.end);
  for (const claim of claims) edges.add(claim.start).add(claim.end);
  for (const quotation of quotations) edges.add(quotation.start).add(quotation.end);
  const cuts = [...edges].filter((at) => at >= from && at <= to).sort((a, b) => a - b);
  const found: Array<Run> = [];
  cuts.slice(0, -1).forEach((start, place) => {
    const end = cuts[place + 1] ?? to;
    const inside = (range: { start: number; end: number }) => range.start <= start && end <= range.end;
    const claim = claims.find(inside) ?? null;
    if (!claim && citations.some(inside)) return;
    found.push({
      text: text.slice(start, end),
      scores: [...new Set(quotations.filter(inside).map((quotation) => quotation.number))],
      citation: claim?.citation ?? null,
      endsCitation: claim !== null && claim.end === end,
    });
  });
  return found;
}

function claimOf(text: string, citation: CitationView): Placed {
  const at = text.indexOf(citation.claim, citation.start);
  const start = at < 0 || at + citation.claim.length > citation.end ? citation.start : at;
  return { citation, start, end: Math.min(start + citation.claim.length, citation.end) };
}
