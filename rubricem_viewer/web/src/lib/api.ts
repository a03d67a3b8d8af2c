// Made from rubricem_viewer/*.py by tests/lanes/browser/api_types.py; the tests compare the two.

export interface RunCard {
  id: string;
  name: string;
  kind: "training" | "evaluation" | "ablation";
  state: "running" | "finished" | "stopped" | "stale" | "unreadable";
  changed: number;
  recipe: string;
  title: string;
  step: number;
  steps: number | null;
  scores: Record<string, number | null>;
  scored_by: "truth" | "judge";
  scored_at: number | null;
  lessons: number;
  seconds: number;
  dollars: number | null;
  warnings: number;
  recorded: number;
  has_bank: boolean;
  problem: string;
}

export interface RunList {
  root: string;
  only_run: string | null;
  runs: Array<RunCard>;
}

export interface RunDetail {
  card: RunCard;
  settings: Record<string, unknown>;
  warnings: Array<Record<string, number | string>>;
  notes: Array<string>;
}

export interface Curve {
  name: string;
  x: Array<number>;
  y: Array<number>;
  low: Array<number>;
  high: Array<number>;
  dashed: boolean;
  stage: string;
  run: string;
}

export interface Figure {
  key: string;
  section: string;
  note: string;
  title: string;
  unit: string;
  x_name: string;
  including: Array<number>;
  curves: Array<Curve>;
}

export interface Comparison {
  runs: Array<RunCard>;
  policies: Array<string>;
  judges: Array<string>;
  note: string;
  differs: Record<string, Array<string>>;
  figures: Array<Figure>;
}

export interface TrajectoryRow {
  id: string;
  step: number;
  group: string;
  attempt: number;
  question: string;
  question_key: string;
  scores: Record<string, number | null>;
  mean: number | null;
  true: Record<string, number | null>;
  valid: boolean;
  ending: string;
  calls: number;
  tokens: number;
  violations: number;
  lessons: Array<number>;
}

export interface TrajectoryPage {
  total: number;
  matched: number;
  page: number;
  size: number;
  rows: Array<TrajectoryRow>;
  endings: Array<string>;
  steps: [number, number] | null;
}

export interface Passage {
  element: number;
  start: number;
  end: number;
}

export interface CitationView {
  ids: Array<string>;
  claim: string;
  start: number;
  end: number;
  known: Array<string>;
}

export interface SnippetView {
  id: string;
  title: string;
  url: string;
  text: string;
  cited: boolean;
}

export interface SectionView {
  name: string;
  text: string;
  start: number;
  end: number;
}

export interface Element {
  index: number;
  kind: "prompt" | "think" | "plan" | "call" | "result" | "notice" | "state_evaluation" | "review" | "answer" | "block" | "text" | "cut";
  name: string;
  stage: string;
  turn: number;
  text: string;
  length: number;
  closed: boolean;
  sections: Array<SectionView>;
  call: ToolCall | null;
  repeated: boolean;
  status: string;
  snippets: Array<SnippetView>;
  citations: Array<CitationView>;
}

export interface ElementText {
  index: number;
  offset: number;
  text: string;
  next_offset: number | null;
}

export interface ScoreView {
  rubric: Rubric;
  rubric_score: RubricScore;
  passages: Array<Passage>;
}

export interface StageView {
  stage: string;
  happened: boolean;
  score: number | null;
  unscored: string;
  detail: string;
  true: number | null;
  returned: number | null;
  advantage: number | null;
  scores: Array<ScoreView>;
}

export interface ViolationView {
  code: string;
  turn: number;
  message: string;
  strict: boolean;
  passage: Passage | null;
}

export interface SeenTurn {
  turn: number;
  text: string;
  observation: string;
}

export interface FoldView {
  turn: number;
  folded: number;
  before: number;
  after: number;
  seen: Array<SeenTurn>;
  is_shown: boolean;
}

export interface TrajectoryView {
  row: TrajectoryRow;
  policy: string;
  prompt_hash: string;
  temperature: number | null;
  failure: string;
  judge: string;
  judge_failure: string;
  encounter: string;
  trained: boolean | null;
  lessons: Array<ShownLesson>;
  injections: Array<string>;
  elements: Array<Element>;
  elements_total: number;
  stages: Array<StageView>;
  violations: Array<ViolationView>;
  unknown_citations: Array<string>;
  claims: Array<string>;
  turns: number;
  folds: Array<FoldView>;
  input_tokens: number;
  output_tokens: number;
  seconds: number | null;
  dollars: number | null;
  num_tokens: number;
  attempts: Array<string>;
}

export interface TokenPage {
  total: number;
  offset: number;
  prompt_length: number;
  windows: Array<number>;
  texts: Array<string>;
  stages: Array<number>;
  logprobs: Array<number | null>;
  advantages: Array<number | null>;
}

export interface Separator {
  kind: "stage" | "rubric" | "statistic";
  key: string;
  title: string;
  stage: string;
  values: Array<number | null>;
  spread: number;
  agreement: number | null;
}

export interface GroupRollout {
  row: TrajectoryRow;
  advantages: Record<string, number | null>;
  trained: boolean;
  opening: string;
  answer: string;
}

export interface GroupView {
  id: string;
  step: number;
  encounter: string;
  question: string;
  question_key: string;
  judge: string;
  rubrics: Array<Rubric>;
  rollouts: Array<GroupRollout>;
  separators: Array<Separator>;
  lessons: Array<ShownLesson>;
  proposal_failure: string;
  refused: Array<string>;
}

export interface QuestionRow {
  key: string;
  question: string;
  steps: Array<number>;
  active: number;
  retired: number;
  mean: number | null;
}

export interface QuestionPage {
  total: number;
  matched: number;
  page: number;
  size: number;
  rows: Array<QuestionRow>;
}

export interface RubricEvent {
  step: number;
  group: string;
  fate: "born" | "kept" | "returned" | "retired";
  reason: string;
  variance: number | null;
  scores: Array<number>;
  mean: number | null;
}

export interface RubricLife {
  rubric: Rubric;
  status: "persistent" | "active" | "retired";
  events: Array<RubricEvent>;
}

export interface StepNote {
  step: number;
  group: string;
  encounter: string;
  refused: Array<string>;
  failure: string;
}

export interface RubricHistory {
  key: string;
  question: string;
  steps: Array<StepNote>;
  rubrics: Array<RubricLife>;
}

export interface EvaluationView {
  title: string;
  mode: string;
  agent: string;
  expected: number;
  answered: number;
  complete: boolean;
  scores: Array<JudgeScores>;
  agreements: Array<JudgeAgreement>;
  comparisons: Array<RunComparison>;
  published: Array<PublishedTable>;
  endings: Record<string, number>;
  failures: Record<string, number>;
  found: Record<string, number>;
  dollars: number;
  seconds: number;
  note: string;
}

export interface ExampleRow {
  id: string;
  example: string;
  epoch: number;
  question: string;
  answer: string;
  scores: Array<number | null>;
  disagreement: number | null;
  failure: string;
  ending: string;
  seconds: number;
  dollars: number;
}

export interface ExamplePage {
  total: number;
  matched: number;
  page: number;
  size: number;
  rows: Array<ExampleRow>;
}

export interface ExampleView {
  row: ExampleRow;
  given: string;
  trajectory: TrajectoryView | null;
  replies: Array<VerdictRecord>;
}

export interface BankRow {
  id: number;
  status: "active" | "probation" | "quarantined" | "superseded" | "removed";
  reason: string;
  effect: LessonEffect;
  question: string;
  question_key: string;
  step: number;
  utility: number | null;
  uses: number;
  similarity: number | null;
}

export interface BankPage {
  total: number;
  matched: number;
  page: number;
  size: number;
  rows: Array<BankRow>;
  counts: Record<string, number>;
  editable: boolean;
  note: string;
}

export interface LessonUse {
  group: string;
  step: number;
  question: string;
  question_key: string;
  own_question: boolean;
  similarity: number;
  scores: Record<string, number | null>;
  before: Record<string, number | null>;
}

export interface BankItemView {
  row: BankRow;
  rubrics: string;
  takeaways: string;
  score: Record<string, number> | null;
  model: string;
  prompt_hash: string;
  origin: LessonOrigin;
  decided_by_person: boolean;
  history: Array<BankRow>;
  uses: Array<LessonUse>;
  compared: number;
  difference: Record<string, number | null>;
  editable: boolean;
}

export interface BankChange {
  action: "approve" | "quarantine" | "remove";
  reason: string;
}

export interface Spread {
  mean: number;
  low: number;
  high: number;
}

export interface CurvePoint {
  step: number;
  answer: Spread;
}

export interface RecipeResult {
  name: string;
  title: string;
  seeds: Array<number>;
  answer: Spread;
  all_stages: Spread;
  valid: Spread;
  against_baseline: Spread;
  steps_to_baseline: number | null;
  seconds: number;
  curve: Array<CurvePoint>;
}

export interface Ablation {
  steps: number;
  command: string;
  results: Array<RecipeResult>;
}

export interface ToolCall {
  name: string;
  query: string;
  parameters: Array<[string, string]>;
  written_name: string;
}

export interface Rubric {
  stage: string;
  title: string;
  description: string;
  polarity: "positive" | "negative";
  weight: number;
  persistent: boolean;
  provenance: Provenance;
}

export interface RubricScore {
  rubric_id: string;
  score: number;
  justification: string;
  scores: Array<number>;
}

export interface ShownLesson {
  item: number;
  similarity: number;
  attempts: Array<number>;
}

export interface JudgeScores {
  judge: string;
  headline: string;
  score: number | null;
  worst: number | null;
  spread: MeanInterval | null;
  wilson: MeanInterval | null;
  metrics: Record<string, number | null>;
  texts: Record<string, string>;
  per_example: Record<string, number>;
  graded: number;
  excluded: Record<string, number>;
  ungraded: Record<string, number>;
  unreadable: number;
  read_differently: number;
  replies: number;
}

export interface JudgeAgreement {
  first: string;
  second: string;
  n: number;
  share: number;
  kappa: number;
}

export interface RunComparison {
  first: string;
  second: string;
  difference: number;
  low: number;
  high: number;
  p_value: number;
  n: number;
  better: number;
  worse: number;
  note: string;
}

export interface PublishedTable {
  source: string;
  columns: Array<string>;
  rows: Array<PublishedScores>;
}

export interface VerdictRecord {
  benchmark: string;
  mode: string;
  id: string;
  epoch: number;
  judge: string;
  question: string;
  asked: string;
  replies: Array<string>;
  cut: Array<number>;
  model: string;
  failure: string;
  usage: Usage;
  dollars: number | null;
  seconds: number;
}

export interface LessonEffect {
  shown: number;
  unshown: number;
  questions: Array<string>;
  weight: number;
  gain: number;
  squares: number;
  freedom: number;
  mean: number;
  low: number;
  high: number;
}

export interface LessonOrigin {
  attempt: number | null;
  fingerprint: string;
  words: number;
  from_question: number;
  from_policy: number;
  from_pages: number;
  page_words: Array<string>;
}

export interface Provenance {
  step: number;
  model: string;
  prompt_hash: string;
}

export interface MeanInterval {
  low: number;
  high: number;
  stderr: number;
  n: number;
  method: string;
}

export interface PublishedScores {
  system: string;
  values: Array<number | null>;
  flags: Array<string>;
}

export interface Usage {
  calls: number;
  input_tokens: number;
  cached_tokens: number;
  output_tokens: number;
  reasoning_tokens: number;
}
