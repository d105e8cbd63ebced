// Everything about one call, or one region.
import { useMemo } from "preact/hooks";
import { count, duration, exactly, percent, visible } from "./format";
import { lanePath, type Region, type Run } from "./model";
import * as state from "./state";
import { Bar, Chip } from "./tables";
import { css } from "./colour";

function Fact({ name, children, title }: { name: string; children: preact.ComponentChildren; title?: string }) {
  return (
    <div class="fact" title={title}>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function SourceText({ region }: { region: Region }) {
  if (!region.source) return null;
  const [file, line, text, tags] = region.source;
  return (
    <section class="source" aria-label="Source">
      {file && <p class="where"><code>{visible(file)}{line !== null ? `:${line}` : ""}</code></p>}
      {tags.length > 0 && <p>{tags.map((tag) => <span class="tag" key={tag}>{visible(tag)}</span>)}</p>}
      {text && <pre tabIndex={0} aria-label="Source text">{text.split("\n").map((part) => visible(part)).join("\n")}</pre>}
    </section>
  );
}

function Statistics({ region, length }: { region: Region; length: number | null }) {
  const { min, p50, p95, max } = region;
  const spread = max > min && length !== null ? (Math.log(Math.max(length, 1)) - Math.log(Math.max(min, 1))) / (Math.log(Math.max(max, 1)) - Math.log(Math.max(min, 1))) : null;
  return (
    <section aria-label="All calls of the region">
      <h3>{region.calls === 1 ? "Its only call" : `All ${count(region.calls)} calls`}</h3>
      {spread !== null && (
        <div class="scale" title="Where this call lies between the shortest and the longest, on a logarithmic scale">
          <i style={{ left: `${Math.min(100, Math.max(0, spread * 100))}%` }} />
        </div>
      )}
      <dl class="grid">
        <Fact name="total">{duration(region.total)}</Fact>
        <Fact name="own">{duration(region.own)}</Fact>
        {region.awaiting !== null && <Fact name="awaiting">{duration(region.awaiting)}</Fact>}
        <Fact name="mean">{duration(region.mean)}</Fact>
        <Fact name="min">{duration(min)}</Fact>
        <Fact name="p50">{duration(p50)}</Fact>
        <Fact name="p95">{duration(p95)}</Fact>
        <Fact name="max">{duration(max)}</Fact>
      </dl>
    </section>
  );
}

function CallMetadata({ text }: { text: string }) {
  const pairs = useMemo(() => {
    try {
      return Object.entries(JSON.parse(text.replace(/\bNaN\b|-?\bInfinity\b/g, "null")) as Record<string, unknown>);
    } catch {
      return [["metadata", text]] as [string, unknown][];
    }
  }, [text]);
  return (
    <dl class="facts" data-testid="metadata">
      {pairs.map(([key, value]) => (
        <Fact key={key} name={visible(key)}>{visible(typeof value === "string" ? value : JSON.stringify(value))}</Fact>
      ))}
    </dl>
  );
}

function Children({ run, at }: { run: Run; at: state.Selected }) {
  const { calls } = at;
  const [from, to] = calls.children(at.call);
  if (from === to) return null;
  const longest: number[] = [];
  const limit = Math.min(to, from + 100_000);
  for (let i = from; i < limit; i++) {
    longest.push(i);
    if (longest.length > 64) {
      longest.sort((a, b) => calls.end[b] - calls.start[b] - (calls.end[a] - calls.start[a]));
      longest.length = 8;
    }
  }
  longest.sort((a, b) => calls.end[b] - calls.start[b] - (calls.end[a] - calls.start[a]));
  const whole = Math.max(calls.end[at.call] - calls.start[at.call], 1);
  return (
    <section aria-label="Calls inside">
      <h3>{to - from === 1 ? "1 call inside" : `${count(to - from)} calls inside`}</h3>
      <ul class="children">
        {longest.slice(0, 8).map((call) => (
          <li key={call}>
            <button class="link" onClick={() => state.select({ calls, call }, true)}>
              <Chip colour={run.colours[calls.name[call]]} />
              <span class="name">{visible(run.names[calls.name[call]])}</span>
            </button>
            <span>{duration(calls.end[call] - calls.start[call])}</span>
            <span class="faint">{percent((calls.end[call] - calls.start[call]) / whole)}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function CallDetails({ run, at }: { run: Run; at: state.Selected }) {
  const { calls, call } = at;
  const region = run.byId[calls.name[call]]!;
  const lane = state.laneOf(run, at);
  const length = calls.end[call] - calls.start[call];
  const awaiting = calls.awaiting ? calls.awaiting[call] : null;
  const gpu = calls.gpu && calls.gpu[call] > 0 ? calls.gpu[call] - 1 : null;
  const parent = calls.parent[call];
  const row = calls.rowOf(call);
  const metadata = calls.metadataOf(call);
  return (
    <>
      <h2><Chip colour={region.colour} /> {visible(region.name)}</h2>
      <p class="big" data-testid="duration" title={exactly(length)}>{duration(length)}</p>
      {awaiting !== null && length > 0 && (
        <div class="split">
          <Bar part={length - awaiting} whole={length} most={length} colour={css(region.colour)} />
          <span><b>{duration(length - awaiting)}</b> running</span>
          <span><b>{duration(awaiting)}</b> awaiting</span>
        </div>
      )}
      <dl class="facts">
        <Fact name="Own" title="Not covered by calls inside"><span data-testid="own">{duration(calls.own(call))}</span></Fact>
        {gpu !== null && <Fact name="GPU">{duration(gpu)}</Fact>}
        <Fact name="Starts" title="From the origin of the run"><span data-testid="start">{exactly(calls.start[call])}</span></Fact>
        <Fact name="Ends">{exactly(calls.end[call])}</Fact>
        {lane && <Fact name="Lane"><button class="link" data-testid="lane" onClick={() => state.reveal(lane)}>{lanePath(lane)}</button></Fact>}
        {lane?.task?.maker && <Fact name="Made by">{visible(lane.task.maker)}</Fact>}
        {calls.trackOf(call).extra > 0 && <Fact name="Track">overlaps other calls of its lane (extra track {calls.trackOf(call).extra})</Fact>}
        <Fact name="Depth">{calls.rowDepth[row]}</Fact>
        {parent >= 0 && (
          <Fact name="Inside">
            <button class="link" data-testid="parent" onClick={() => state.select({ calls, call: parent }, true)}>
              <Chip colour={run.colours[calls.name[parent]]} />
              <span class="name">{visible(run.names[calls.name[parent]])}</span>
            </button>{" "}
            <span class="faint">{percent(length / Math.max(calls.end[parent] - calls.start[parent], 1))}</span>
          </Fact>
        )}
      </dl>
      <div class="buttons">
        <button onClick={() => state.zoomTo(at)} title="f">Zoom to it</button>
        <button onClick={() => state.step(-1, state.only(region.id))} title="The call of this region before it in the order of the lanes">‹ Previous</button>
        <button onClick={() => state.step(1, state.only(region.id))} title="The next call of this region in the order of the lanes">Next ›</button>
      </div>
      {metadata && <CallMetadata text={metadata} />}
      <Children run={run} at={at} />
      <Statistics region={region} length={length} />
      <SourceText region={region} />
    </>
  );
}

function RegionDetails({ run, region }: { run: Run; region: Region }) {
  return (
    <>
      <h2><Chip colour={region.colour} /> {visible(region.name)}</h2>
      <p class="big" data-testid="duration" title={exactly(region.total)}>{duration(region.total)}</p>
      <div class="buttons">
        {run.ranks.length > 0 && (
          <button
            onClick={() => {
              state.tab.value = "timeline";
              state.step(1, state.only(region.id));
            }}
          >
            Show its first call
          </button>
        )}
        <button onClick={() => (state.search.value = visible(region.name))}>Highlight it</button>
      </div>
      <Statistics region={region} length={null} />
      <SourceText region={region} />
    </>
  );
}

export function Details({ run }: { run: Run }) {
  const at = state.selected.value;
  const chosen = state.chosenRegion.value;
  const region = chosen !== null ? run.byId[chosen] : undefined;
  if (!at && !region) return null;
  const close = () => {
    state.select(null);
    state.chosenRegion.value = null;
  };
  return (
    <aside
      class="details" aria-label={at ? "The selected call" : "The selected region"}
      onKeyDown={(event) => {
        if (event.key === "Escape") close();
      }}
    >
      <button class="close" aria-label="Close the details" onClick={close}>✕</button>
      {at ? <CallDetails run={run} at={at} /> : <RegionDetails run={run} region={region!} />}
    </aside>
  );
}
