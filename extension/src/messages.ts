// Written by extension/twins.py from devkit/control/messages.py and its neighbours:
// change those, then run it again. Everything is a frozen picture; nothing writes to it.

export const VERSION = 1;

/**
 * A request of the Debug Adapter Protocol, for a face that speaks it itself.
 */
export interface IAskDebugger {
  readonly command: string;
  readonly arguments: { readonly [key: string]: any };
}

/**
 * Attach a debugger to an instance of a model, the named one or any.
 */
export interface IAttach {
  readonly model: string;
  readonly version: string;
  readonly instance: string;
  readonly take: string;
  readonly spare: boolean;
  readonly fresh: boolean;
}

/**
 * One `execute`: what it was made of, and why it closed.
 */
export interface IBatch {
  readonly number: number;
  readonly time: number;
  readonly model: string;
  readonly version: string;
  readonly instance: string;
  readonly size: number;
  readonly count: number;
  readonly reason: string;
  readonly why: string;
  readonly input_us: number;
  readonly infer_us: number;
  readonly failed: boolean;
  readonly requests: readonly IBatchedRequest[];
}

/**
 * How many executions closed for that reason.
 */
export interface IBatchReason {
  readonly reason: string;
  readonly why: string;
  readonly executions: number;
  readonly inferences: number;
}

/**
 * How many executions had this batch size, and how long their `execute` took in all.
 */
export interface IBatchSize {
  readonly size: number;
  readonly executions: number;
  readonly infer_ns: number;
}

/**
 * A request as a part of a batch.
 *
 * `outcome` is `answered`, `failed`, `open` (its answers are still to come: a response sender has
 * it), `cancelled` (its client has gone) or `empty` (an empty slot of a sequence batch).
 */
export interface IBatchedRequest {
  readonly id: string;
  readonly inputs: readonly ITensor[];
  readonly batch_size: number;
  readonly correlation_id: string;
  readonly flags: number;
  readonly queue_us: number;
  readonly outcome: string;
}

/**
 * How a model's requests became batches; `advice` says what would change it, a sentence each.
 *
 * `gone` are the last requests whose clients gave them up, `open` those that wait or run now.
 * `batches` are the last that were kept: all of a slow model, a number a second of a fast one.
 * `reasons` and `sizes` count every one.
 */
export interface IBatches {
  readonly model: string;
  readonly reasons: readonly IBatchReason[];
  readonly sizes: readonly IBatchSize[];
  readonly batches: readonly IBatch[];
  readonly open: readonly IOpenRequest[];
  readonly gone: readonly IOpenRequest[];
  readonly advice: readonly string[];
}

/**
 * Where to stop; kept by the runtime, whether a debugger is attached or not.
 */
export interface IBreakpoint {
  readonly id: number;
  readonly path: string;
  readonly line: number;
  readonly model: string;
  readonly condition: string;
  readonly hits: string;
  readonly log: string;
  readonly enabled: boolean;
  readonly verified: boolean;
  readonly text: string;
}

/**
 * All breakpoints, and at which exceptions to stop.
 *
 * `raised`: at every one; `uncaught`: at those that leave the model's own code.
 */
export interface IBreakpoints {
  readonly breakpoints: readonly IBreakpoint[];
  readonly raised: boolean;
  readonly uncaught: boolean;
}

/**
 * One recorded request, without its bytes.
 */
export interface ICaptureInfo {
  readonly number: number;
  readonly model: string;
  readonly version: string;
  readonly id: string;
  readonly time: number;
  readonly seconds: number;
  readonly request_bytes: number;
  readonly response_bytes: number;
  readonly responses: number;
  readonly error: string;
  readonly whole: boolean;
  readonly probes: number;
  readonly dropped: number;
  readonly inputs: readonly ITensor[];
}

/**
 * How much is recorded.
 */
export interface ICaptureSettings {
  readonly on: boolean;
  readonly count: number;
  readonly bytes: number;
  readonly largest: number;
  readonly rate: number;
  readonly slow: number;
  readonly probes: boolean;
  readonly used: number;
  readonly kept: number;
}

/**
 * One of the requests that a stopped one was made for: which model made it, and at which line.
 *
 * `instance` is empty where that request waits, or is an ensemble's.
 */
export interface IChainLink {
  readonly model: string;
  readonly instance: string;
  readonly pid: number;
  readonly request_id: string;
  readonly line: string;
}

/**
 * A safe edit: `text` instead of what stands at the place.
 */
export interface IChange {
  readonly place: IPlace;
  readonly text: string;
}

/**
 * Compare two tensors that were kept; `exact` looks at every value, however many.
 */
export interface ICompareTensors {
  readonly left: ITensorAddress;
  readonly right: ITensorAddress;
  readonly exact: boolean;
}

/**
 * What could be meant by `text` with the cursor at `column` (from 1), in a frame.
 */
export interface IComplete {
  readonly text: string;
  readonly column: number;
  readonly frame: number;
}

/**
 * A way to go on with what was typed: `text` replaces `length` characters from `start`.
 */
export interface ICompletion {
  readonly label: string;
  readonly text: string;
  readonly start: number;
  readonly length: number;
  readonly kind: string;
}

/**
 * What can be written at the place, and what stands there (Markdown; empty for nothing).
 */
export interface IConfigHelp {
  readonly suggestions: readonly ISuggestion[];
  readonly explanation: string;
}

/**
 * A place in a `config.pbtxt` that somebody is writing; line and column from 1.
 */
export interface IConfigPlace {
  readonly text: string;
  readonly line: number;
  readonly column: number;
}

/**
 * A debugger on one instance; several faces share it.
 */
export interface IDebugSession {
  readonly id: number;
  readonly model: string;
  readonly version: string;
  readonly instance: string;
  readonly pid: number;
  readonly state: string;
  readonly take: string;
  readonly turn: number;
  readonly thread: number;
  readonly reason: string;
  readonly text: string;
  readonly line: string;
  readonly function: string;
  readonly requests: readonly string[];
  readonly chain: readonly IChainLink[];
  readonly callee: string;
  readonly spare: string;
  readonly seconds: number;
}

/**
 * A thread of a debugged instance.
 */
export interface IDebugThread {
  readonly id: number;
  readonly name: string;
  readonly stopped: boolean;
}

/**
 * What the doctor says of some models, for a release of Triton.
 */
export interface IDiagnosis {
  readonly findings: readonly IFinding[];
  readonly models: readonly string[];
  readonly release: string;
}

/**
 * Tensor `name` on two sides.
 */
export interface IDifference {
  readonly name: string;
  readonly verdict: string;
  readonly detail: string;
  readonly datatype: string;
  readonly shape: readonly number[];
  readonly count: number;
  readonly looked_at: number;
  readonly note: string;
  readonly unequal: number;
  readonly largest: number;
  readonly relative: number;
  readonly mean: number;
  readonly ulps: number;
  readonly nonfinite: number;
  readonly where: readonly number[];
  readonly first: readonly number[];
  readonly left: string;
  readonly right: string;
}

/**
 * A port on loopback where an editor's debugger finds a model, as long as the door is open.
 */
export interface IDoor {
  readonly model: string;
  readonly instance: string;
  readonly port: number;
}

/**
 * Where a protocol is served.
 */
export interface IEndpoint {
  readonly protocol: string;
  readonly address: string;
  readonly port: number;
}

/**
 * Evaluate an expression, or run a statement (`context` "repl"), in a frame.
 */
export interface IEvaluate {
  readonly expression: string;
  readonly frame: number;
  readonly context: string;
}

/**
 * Something happened; `sequence` grows by one from event to event, over all kinds.
 */
export interface IEvent {
  readonly sequence: number;
  readonly time: number;
  readonly kind: string;
  readonly model: string;
  readonly version: string;
  readonly instance: string;
  readonly pid: number;
  readonly state: string;
  readonly text: string;
  readonly line: string;
  readonly rule: string;
  readonly traceback: string;
  readonly seconds: number;
  readonly session: number;
}

/**
 * What to export, where to, and in which form.
 */
export interface IExportAsked {
  readonly dest: string;
  readonly models: readonly string[];
  readonly force: boolean;
  readonly full: boolean;
  readonly version: string;
  readonly warmup: boolean;
  readonly client: boolean;
  readonly requirements: boolean;
  readonly perf: boolean;
  readonly deploy: boolean;
  readonly environment: string;
  readonly release: string;
}

/**
 * What an export would write, or has written.
 */
export interface IExportPlan {
  readonly dest: string;
  readonly models: readonly string[];
  readonly state: string;
  readonly files: readonly IExportedFile[];
  readonly brought: readonly string[];
  readonly assumed: readonly string[];
  readonly warnings: readonly string[];
}

/**
 * A file of an export; `diff` is what changes in it, as a unified diff.
 */
export interface IExportedFile {
  readonly path: string;
  readonly bytes: number;
  readonly state: string;
  readonly diff: string;
}

/**
 * Why a call was refused or failed; `kind` is the name of the error in `devkit.errors`.
 */
export interface IFailure {
  readonly error: string;
  readonly kind: string;
  readonly model: string | null;
  readonly instance: string | null;
  readonly line: string | null;
  readonly remedy: string | null;
  readonly traceback: string | null;
  readonly code: number | null;
}

/**
 * An `execute` that raised (`kind` is `raised`) or a process that died (`died`).
 */
export interface IFailureInfo {
  readonly number: number;
  readonly time: number;
  readonly kind: string;
  readonly model: string;
  readonly version: string;
  readonly instance: string;
  readonly pid: number;
  readonly error: string;
  readonly line: string;
  readonly ending: string;
  readonly requests: number;
  readonly repeats: number;
}

/**
 * One trap that the doctor found.
 */
export interface IFinding {
  readonly rule: string;
  readonly severity: string;
  readonly message: string;
  readonly why: string;
  readonly fix: string;
  readonly model: string;
  readonly place: IPlace;
  readonly source: string;
  readonly text: string;
  readonly changes: readonly IChange[];
}

/**
 * One call of a stack; `path` is the user's own file, `own` false for library code.
 */
export interface IFrame {
  readonly id: number;
  readonly name: string;
  readonly path: string;
  readonly line: number;
  readonly column: number;
  readonly own: boolean;
}

/**
 * A value as text, and how often it was seen.
 */
export interface IFrequent {
  readonly value: string;
  readonly count: number;
}

/**
 * One GPU; bytes, and percent of the last moments in which it computed.
 */
export interface IGpu {
  readonly index: number;
  readonly name: string;
  readonly total: number;
  readonly used: number;
  readonly busy_percent: number;
}

/**
 * The upper left of a table as text; `index` says which of the tensor's planes it is.
 */
export interface IGrid {
  readonly rows: number;
  readonly columns: number;
  readonly index: string;
  readonly cells: readonly (readonly string[])[];
}

/**
 * `counts[i]` finite values lie between `edges[i]` and `edges[i + 1]`.
 */
export interface IHistogram {
  readonly edges: readonly number[];
  readonly counts: readonly number[];
}

/**
 * The last minutes; the last value of every series is as of `end`, one each `step` seconds.
 */
export interface IHistory {
  readonly end: number;
  readonly step: number;
  readonly series: readonly ISeries[];
}

/**
 * A row of values, or the lowest and highest of each `step` of them where there are many.
 */
export interface IInspectionSeries {
  readonly count: number;
  readonly step: number;
  readonly lowest: readonly (number | null)[];
  readonly highest: readonly (number | null)[];
}

/**
 * One instance of a model, which is one process.
 */
export interface IInstance {
  readonly name: string;
  readonly model: string;
  readonly version: string;
  readonly pid: number;
  readonly state: string;
  readonly kind: string;
  readonly device: number;
  readonly started: string;
  readonly load_seconds: number;
  readonly restarts: number;
  readonly executes: number;
  readonly in_flight: number;
  readonly process: IProcess | null;
  readonly work: IWork | null;
  readonly last_words: string;
}

/**
 * One frame of a traceback; the values of `locals` are short reprs.
 */
export interface IKeptFrame {
  readonly file: string;
  readonly line: number;
  readonly function: string;
  readonly source: readonly ISourceLine[];
  readonly locals: { readonly [key: string]: string };
}

/**
 * Sample tensors of a model whose config names none, to make its config of.
 *
 * Inputs alone announce a request whose answer is to be learned; nothing at all takes that back.
 */
export interface ILearn {
  readonly inputs: readonly ITensor[];
  readonly outputs: readonly ITensor[];
}

/**
 * What an editor holds of a file that is not saved; `file` is a path in the model's folder.
 */
export interface ILintText {
  readonly model: string;
  readonly text: string;
  readonly file: string;
  readonly release: string;
}

/**
 * Load a model; `config` replaces its config, `files` (base64) its files, for this load.
 */
export interface ILoadModel {
  readonly config: { readonly [key: string]: any } | null;
  readonly files: { readonly [key: string]: string } | null;
}

/**
 * One line of the log or of a model's output.
 *
 * `stream` is `stdout`, `stderr`, or the level of a Logger line.
 */
export interface ILogLine {
  readonly sequence: number;
  readonly time: number;
  readonly stream: string;
  readonly text: string;
  readonly model: string;
  readonly instance: string;
  readonly pid: number;
  readonly file: string;
  readonly line: number;
}

/**
 * One model of the repository, loaded or not.
 */
export interface IModel {
  readonly name: string;
  readonly version: string;
  readonly versions: readonly string[];
  readonly state: string;
  readonly reason: string;
  readonly platform: string;
  readonly inputs: readonly ITensor[];
  readonly outputs: readonly ITensor[];
  readonly max_batch_size: number;
  readonly decoupled: boolean;
  readonly folder: string;
  readonly file: string;
  readonly files: readonly string[];
  readonly scratch: boolean;
  readonly assumed: readonly string[];
  readonly unlearned: boolean;
  readonly error: string;
  readonly instances: readonly IInstance[];
  readonly pending: number;
  readonly inferences: number;
  readonly executions: number;
  readonly failures: number;
  readonly work: IWork | null;
  readonly batch_sizes: readonly IBatchSize[];
  readonly warnings: readonly IWarned[];
  readonly loaded_at: number;
  readonly load_seconds: number;
}

/**
 * What a cell says about its model; becomes a `config.pbtxt` where it brings none.
 */
export interface IModelOptions {
  readonly instances: number | null;
  readonly kind: string | null;
  readonly max_batch_size: number | null;
  readonly dynamic_batching: boolean;
  readonly preferred_batch_size: readonly number[];
  readonly max_queue_delay_microseconds: number | null;
  readonly preserve_ordering: boolean;
  readonly decoupled: boolean;
  readonly parameters: { readonly [key: string]: string };
  readonly config: string | null;
}

/**
 * Go on: `continue`, `next`, `step_in`, `step_out`, `pause`, or `goto` a line.
 *
 * `into` is a model that the line calls: a debugger is attached to it, too, and its `execute`
 * stops for this request.
 */
export interface IMove {
  readonly how: string;
  readonly thread: number;
  readonly line: number;
  readonly into: string;
}

/**
 * A request that waits or runs, and for how long. `state` is `queued`, `running`, `cancelled`
 * (it never ran, or has ended since) or `abandoned`: its client has gone, the model was told so,
 * and has not ended it.
 */
export interface IOpenRequest {
  readonly id: string;
  readonly model: string;
  readonly version: string;
  readonly state: string;
  readonly seconds: number;
  readonly instance: string;
  readonly correlation_id: string;
}

/**
 * A load, swap, unload or restart: why it came, what it did, what it waits for.
 */
export interface IOperation {
  readonly model: string;
  readonly kind: string;
  readonly state: string;
  readonly time: number;
  readonly seconds: number;
  readonly cause: string;
  readonly version: string;
  readonly stages: readonly IStage[];
  readonly blocks: string;
  readonly error: string;
  readonly line: string;
  readonly text: string;
}

/**
 * A part of `execute` that the model marked with `devkit.span`; `thread` is the system's id.
 */
export interface IOwnSpan {
  readonly name: string;
  readonly start: number;
  readonly end: number;
  readonly thread: number;
  readonly attributes: { readonly [key: string]: any };
}

/**
 * Bytes of a slab that belong to one owner.
 */
export interface IOwner {
  readonly name: string;
  readonly bytes: number;
}

/**
 * A tensor as a picture; `png` in base64.
 */
export interface IPicture {
  readonly png: string;
  readonly layout: string;
  readonly width: number;
  readonly height: number;
  readonly shown: number;
  readonly count: number;
  readonly step: number;
  readonly scaling: string;
}

/**
 * A piece of a file; lines and columns from 1, the end behind the last character.
 */
export interface IPlace {
  readonly file: string;
  readonly line: number;
  readonly column: number;
  readonly end_line: number;
  readonly end_column: number;
}

/**
 * All that is known of a failure; frames are outermost first, `log` ends with the last line.
 */
export interface IPostMortem {
  readonly info: IFailureInfo;
  readonly traceback: string;
  readonly frames: readonly IKeptFrame[];
  readonly requests: readonly ICaptureInfo[];
  readonly log: readonly ILogLine[];
}

/**
 * What the operating system says of one process; bytes, and -1 where it does not say.
 */
export interface IProcess {
  readonly pid: number;
  readonly rss: number;
  readonly pss: number;
  readonly uss: number;
  readonly cpu_percent: number;
  readonly threads: number;
  readonly open_files: number;
  readonly gpu: number;
}

/**
 * Write a model into the workspace's scratch repository and serve it.
 *
 * `files` are texts by their path in the model's folder, such as `1/model.py`. A model that is
 * there already keeps the files that are not named, and is swapped without losing a request.
 */
export interface IPutModel {
  readonly files: { readonly [key: string]: string };
  readonly options: IModelOptions;
}

/**
 * One runtime: also what the discovery file holds.
 */
export interface IRuntime {
  readonly pid: number;
  readonly workspace: string;
  readonly started: number;
  readonly control: string;
  readonly local: string;
  readonly endpoints: readonly IEndpoint[];
  readonly repositories: readonly string[];
  readonly scratch: string;
  readonly log_file: string;
  readonly python: string;
  readonly devkit: string;
  readonly server_version: string;
  readonly version: number;
}

/**
 * Change how many instances a model has.
 */
export interface IScaleModel {
  readonly count: number;
}

/**
 * A group of a frame's variables: locals, globals.
 */
export interface IScope {
  readonly name: string;
  readonly reference: number;
  readonly expensive: boolean;
}

/**
 * A sequence and where it ran; `state` is `waiting` (for a slot), `running`, `ended` or
 * `evicted` (it was silent for longer than it may).
 */
export interface ISequenceLane {
  readonly correlation_id: string;
  readonly model: string;
  readonly version: string;
  readonly state: string;
  readonly started: number;
  readonly instance: string;
  readonly slot: number;
  readonly ended: number;
  readonly moves: number;
}

/**
 * One number over time, oldest first; None where it was not there.
 *
 * `name` is the number's name and `unit` what it is in (`bytes`, `percent`, `per second`, ...);
 * `model`, `version` and `instance` say whose it is, all empty for the machine's.
 */
export interface ISeries {
  readonly name: string;
  readonly unit: string;
  readonly model: string;
  readonly version: string;
  readonly instance: string;
  readonly values: readonly (number | null)[];
}

/**
 * Give a variable of a scope (or of a structure) another value, written as an expression.
 */
export interface ISetVariable {
  readonly reference: number;
  readonly name: string;
  readonly value: string;
}

/**
 * `/dev/shm` as a whole, and our part of it.
 */
export interface ISharedMemory {
  readonly total: number;
  readonly free: number;
  readonly slabs: readonly ISlab[];
  readonly warning: string;
}

/**
 * One shared-memory region of this runtime; all numbers are bytes except `blocks`.
 */
export interface ISlab {
  readonly name: string;
  readonly size: number;
  readonly used: number;
  readonly free: number;
  readonly high_water: number;
  readonly blocks: number;
  readonly owners: readonly IOwner[];
}

/**
 * All there is to show, as of event number `sequence`.
 */
export interface ISnapshot {
  readonly sequence: number;
  readonly runtime: IRuntime;
  readonly live: boolean;
  readonly ready: boolean;
  readonly models: readonly IModel[];
  readonly process: IProcess | null;
  readonly memory: ISharedMemory;
  readonly gpus: readonly IGpu[];
  readonly time: number;
  readonly version: number;
}

/**
 * A line of a file as it was.
 */
export interface ISourceLine {
  readonly number: number;
  readonly text: string;
}

/**
 * A bar of the timeline.
 */
export interface ISpan {
  readonly name: string;
  readonly kind: string;
  readonly start: number;
  readonly end: number;
  readonly pid: number;
  readonly process: string;
  readonly lane: number;
  readonly lane_name: string;
  readonly trace: number;
  readonly parent: number;
  readonly attributes: { readonly [key: string]: any };
}

/**
 * Where every thread of an instance is now; `note` says how it was found, or why it was not.
 *
 * `running` are the ids of the requests that it executes, `seconds` how long it has done so.
 */
export interface IStack {
  readonly instance: string;
  readonly pid: number;
  readonly threads: readonly IThreadStack[];
  readonly running: readonly string[];
  readonly seconds: number;
  readonly note: string;
}

/**
 * A part of a load, and how long it took; the last one of a load that runs is still going.
 */
export interface IStage {
  readonly name: string;
  readonly seconds: number;
}

/**
 * Trace the next `count` requests (0: until it is stopped) to `model` (empty: to any).
 */
export interface IStartTraces {
  readonly model: string;
  readonly count: number;
  readonly tensors: boolean;
}

/**
 * A request to a decoupled model; `state` is `open`, `ended`, `failed`, `cancelled` or
 * `abandoned` (its client has gone and the model has not ended it). `count` responses came, of
 * which `responses` are the first and the last.
 */
export interface IStreamed {
  readonly id: string;
  readonly model: string;
  readonly version: string;
  readonly time: number;
  readonly state: string;
  readonly count: number;
  readonly responses: readonly IStreamedResponse[];
}

/**
 * One response of a stream, `at` seconds after its request came.
 */
export interface IStreamedResponse {
  readonly at: number;
  readonly final: boolean;
  readonly empty: boolean;
  readonly error: string;
  readonly outputs: readonly ITensor[];
}

/**
 * Something that can be written at a place.
 */
export interface ISuggestion {
  readonly label: string;
  readonly insert: string;
  readonly kind: string;
  readonly type: string;
  readonly text: string;
}

/**
 * A tensor in numbers.
 */
export interface ISummary {
  readonly name: string;
  readonly datatype: string;
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly strides: readonly number[];
  readonly bytes: number;
  readonly count: number;
  readonly looked_at: number;
  readonly note: string;
  readonly minimum: any;
  readonly maximum: any;
  readonly mean: number | null;
  readonly std: number | null;
  readonly nan: number;
  readonly infinite: number;
  readonly zeros: number;
  readonly distinct: number;
  readonly distinct_more: boolean;
  readonly frequent: readonly IFrequent[];
  readonly histogram: IHistogram | null;
  readonly first: readonly string[];
  readonly view: string;
  readonly whole: boolean;
}

/**
 * Which requests the debugged instance gets from now on.
 */
export interface ITake {
  readonly take: string;
}

/**
 * Sample an instance; `format` is `speedscope`, `flamegraph` (SVG) or `raw`.
 *
 * `native` adds the frames of C extensions, `idle` the threads that wait, `pause` stops the
 * process for each sample: exact, and slower.
 */
export interface ITakeProfile {
  readonly instance: string;
  readonly seconds: number;
  readonly rate: number;
  readonly format: string;
  readonly native: boolean;
  readonly idle: boolean;
  readonly pause: boolean;
}

/**
 * An input or output of a model; `shape` has the batch dimension (-1) where there is one.
 */
export interface ITensor {
  readonly name: string;
  readonly datatype: string;
  readonly shape: readonly number[];
  readonly optional: boolean;
}

/**
 * One tensor that was kept.
 */
export interface ITensorAddress {
  readonly capture: number;
  readonly failure: number;
  readonly request: number;
  readonly part: string;
  readonly name: string;
  readonly reply: number;
  readonly occurrence: number;
}

/**
 * A tensor that was kept, without its values.
 *
 * `view` is what shows it best (`scalar`, `series`, `table`, `image`, `text`, `values`); `whole`
 * is False where only a sample of its values was kept.
 */
export interface ITensorInfo {
  readonly address: ITensorAddress;
  readonly datatype: string;
  readonly shape: readonly number[];
  readonly bytes: number;
  readonly view: string;
  readonly whole: boolean;
}

/**
 * What is known of a tensor in a stopped process without copying it.
 *
 * `preview` are its first elements; `min`, `max` and `mean` are of the finite ones.
 */
export interface ITensorSummary {
  readonly kind: string;
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly device: string;
  readonly preview: readonly any[];
  readonly min: number | null;
  readonly max: number | null;
  readonly mean: number | null;
  readonly nan: number;
  readonly inf: number;
}

/**
 * The first elements of a BYTES tensor as text, long ones cut.
 */
export interface ITexts {
  readonly count: number;
  readonly texts: readonly string[];
}

/**
 * Where a thread is, as Python's own traceback text, the innermost frame last.
 */
export interface IThreadStack {
  readonly name: string;
  readonly stack: string;
}

/**
 * One traced request.
 */
export interface ITrace {
  readonly id: number;
  readonly model: string;
  readonly version: string;
  readonly request_id: string;
  readonly parent: number;
  readonly protocol: string;
  readonly handed_on: boolean;
  readonly instance: string;
  readonly pid: number;
  readonly batch: number;
  readonly batch_size: number;
  readonly receive_start: number;
  readonly receive_end: number;
  readonly request_start: number;
  readonly queue_start: number;
  readonly compute_start: number;
  readonly compute_input_end: number;
  readonly compute_output_start: number;
  readonly compute_end: number;
  readonly request_end: number;
  readonly complete: number;
  readonly send_start: number;
  readonly send_end: number;
  readonly waiting: number;
  readonly busy: number;
  readonly instances: number;
  readonly delay: number;
  readonly error: string;
  readonly responses: readonly number[];
  readonly spans: readonly IOwnSpan[];
  readonly tensors: readonly ITracedTensor[];
}

/**
 * Traces that are being taken, or were.
 */
export interface ITraceSession {
  readonly number: number;
  readonly model: string;
  readonly count: number;
  readonly running: boolean;
  readonly begun: number;
  readonly collected: number;
  readonly runtime: number;
  readonly offset: number;
  readonly traces: readonly ITrace[];
}

/**
 * A tensor as the level TENSORS keeps it: its values as text, separated by commas.
 */
export interface ITracedTensor {
  readonly activity: string;
  readonly name: string;
  readonly datatype: string;
  readonly shape: readonly number[];
  readonly data: string;
}

/**
 * Unload a model, and with `dependents` the models only its ensemble needed.
 */
export interface IUnloadModel {
  readonly dependents: boolean;
}

/**
 * A name and its value; `reference` is not 0 where there is more inside.
 *
 * `named` and `indexed` count what is inside, where the debugger knows.
 */
export interface IVariable {
  readonly name: string;
  readonly value: string;
  readonly type: string;
  readonly reference: number;
  readonly named: number;
  readonly indexed: number;
  readonly expression: string;
  readonly tensor: ITensorSummary | null;
}

/**
 * A contract warning that a model has earned since it was loaded.
 */
export interface IWarned {
  readonly rule: string;
  readonly text: string;
  readonly line: string;
  readonly instance: string;
  readonly count: number;
  readonly time: number;
}

/**
 * What a model or an instance has done, in the statistics extension's terms, nanoseconds.
 *
 * `queue_ns`, `input_ns`, `infer_ns` and `output_ns` are sums over requests; `busy_ns` is the time
 * inside `execute`, each batch counted once.
 */
export interface IWork {
  readonly inferences: number;
  readonly executions: number;
  readonly requests: number;
  readonly failed: number;
  readonly queue_ns: number;
  readonly input_ns: number;
  readonly infer_ns: number;
  readonly output_ns: number;
  readonly busy_ns: number;
}
