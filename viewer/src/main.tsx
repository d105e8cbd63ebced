// The page: header, views, details.
import { render, type ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { About, Help } from "./about";
import { Compare } from "./compare";
import { Details } from "./details";
import { Flame } from "./flame";
import { count, duration, percent, visible } from "./format";
import { everyLane, lanePath, readRun, type Lane, type Run } from "./model";
import { readReport } from "./report";
import * as state from "./state";
import "./style.css";
import { Chip, Regions, Samples, Tasks, Threads } from "./tables";
import { exposed, Timeline } from "./timeline";

const TITLES: Record<state.Tab, string> = {
  timeline: "Timeline", flame: "Flame graph", regions: "Regions", threads: "Threads", tasks: "Tasks", samples: "Samples", compare: "Compare", run: "Run",
};

function tabsOf(run: Run): state.Tab[] {
  const tabs: state.Tab[] = [];
  const charts = state.options.value.charts !== false;
  if (charts && run.ranks.length > 0) tabs.push("timeline");
  if (charts && (run.ranks.length > 0 || run.data.nodes?.length)) tabs.push("flame");
  tabs.push("regions", "threads", "tasks");
  if (state.options.value.samples?.[run.index]?.length) tabs.push("samples");
  if (state.runs.value.length > 1) tabs.push("compare");
  return [...tabs, "run"];
}

function Tabs({ tabs }: { tabs: state.Tab[] }) {
  const current = state.tab.value;
  const list = useRef<HTMLDivElement>(null);
  const move = (event: KeyboardEvent) => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (by === 0) return;
    event.preventDefault();
    const next = tabs[(tabs.indexOf(current) + by + tabs.length) % tabs.length];
    state.tab.value = next;
    requestAnimationFrame(() => list.current!.querySelector<HTMLElement>(`#tab-${next}`)!.focus());
  };
  return (
    <div class="tabs" role="tablist" aria-label="Views" ref={list} onKeyDown={move}>
      {tabs.map((tab) => (
        <button
          key={tab} id={`tab-${tab}`} role="tab" aria-selected={tab === current} aria-controls="panel"
          tabIndex={tab === current ? 0 : -1} onClick={() => (state.tab.value = tab)}
        >
          {TITLES[tab]}
        </button>
      ))}
    </div>
  );
}

interface Suggestion {
  key: string;
  label: ComponentChildren;
  open: () => void;
}

function suggestionsFor(run: Run, text: string): Suggestion[] {
  const wanted = text.trim().toLowerCase();
  if (wanted === "") return [];
  const regions = run.regions
    .filter((region) => visible(region.name).toLowerCase().includes(wanted))
    .sort((a, b) => b.total - a.total)
    .slice(0, 6)
    .map((region) => ({
      key: `r${region.id}`,
      label: <><Chip colour={region.colour} /><span class="name">{visible(region.name)}</span><span class="faint">{count(region.calls)} × · {duration(region.total)}</span></>,
      open: () => {
        state.select(null);
        state.chosenRegion.value = region.id;
      },
    }));
  const lanes: Lane[] = [];
  for (const lane of everyLane(run.lanes)) {
    if (lane.kind !== "tasks" && lane.label.toLowerCase().includes(wanted)) lanes.push(lane);
    if (lanes.length === 5) break;
  }
  return [
    ...regions,
    ...lanes.map((lane) => ({
      key: `l${lane.key}`,
      label: <><span class="chip lane-chip" aria-hidden="true">≡</span><span class="name">{lanePath(lane)}</span><span class="faint">{lane.kind}</span></>,
      open: () => {
        state.tab.value = "timeline";
        state.reveal(lane);
      },
    })),
  ];
}

function Search({ run }: { run: Run }) {
  const input = useRef<HTMLInputElement>(null);
  const [open, setOpen] = useState(false);
  const [active, setActive] = useState(-1);
  const text = state.search.value;
  const suggestions = open ? suggestionsFor(run, text) : [];
  const found = state.shown.value;
  const use = (suggestion: Suggestion) => {
    suggestion.open();
    setOpen(false);
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.key === "Escape") {
      if (open && suggestions.length) setOpen(false);
      else if (text) state.search.value = "";
      else input.current!.blur();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const by = event.key === "ArrowDown" ? 1 : -1;
      setOpen(true);
      setActive((active + by + suggestions.length + 1) % (suggestions.length + 1));
    } else if (event.key === "Enter") {
      if (open && suggestions[active]) use(suggestions[active]);
      else if (found) state.step(event.shiftKey ? -1 : 1, found);
      setOpen(false);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class="search" onFocusOut={(event) => !(event.currentTarget as HTMLElement).contains(event.relatedTarget as Node) && setOpen(false)}>
      <input
        ref={input} id="search" type="search" role="combobox" list={undefined} placeholder="Search regions, threads, tasks" value={text} autocomplete="off" spellcheck={false}
        aria-label="Search regions, threads and tasks" aria-expanded={suggestions.length > 0} aria-controls="suggestions" aria-keyshortcuts="/"
        aria-activedescendant={suggestions[active] ? `suggestion-${active}` : undefined}
        onInput={(event) => {
          state.search.value = (event.currentTarget as HTMLInputElement).value;
          setOpen(true);
          setActive(-1);
        }}
        onKeyDown={onKey}
      />
      {found && (
        <span class="found" role="status">
          {run.ranks.length > 0 ? `${count(state.matchCount.value)} calls` : `${count(found.reduce((sum, one) => sum + one, 0))} regions`}
        </span>
      )}
      {suggestions.length > 0 && (
        <ul id="suggestions" role="listbox" aria-label="Suggestions">
          {suggestions.map((suggestion, place) => (
            <li
              key={suggestion.key} id={`suggestion-${place}`} role="option" aria-selected={place === active}
              onPointerDown={(event) => {
                event.preventDefault();
                use(suggestion);
              }}
            >
              {suggestion.label}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

const counted = (number: number, what: string): string => `${count(number)} ${what}${number === 1 ? "" : "s"}`;

function Facts({ run }: { run: Run }) {
  const facts = [counted(run.callCount, "call")];
  if (run.callCount) facts.unshift(duration(run.to - run.from));
  const ranks = new Set(run.data.regions.map((row) => row[1])).size;
  if (ranks > 1) facts.push(`${ranks} ranks`);
  if (run.threads.length) facts.push(counted(run.threads.length, "thread"));
  if (run.tasks.length) facts.push(counted(run.tasks.length, "task"));
  const shared = run.threads.filter((thread) => thread.share !== null);
  const cpu = shared.reduce((sum, thread) => sum + (thread.cpu ?? 0), 0);
  const wall = shared.reduce((sum, thread) => sum + (thread.wall ?? 0), 0);
  if (cpu > 0 && wall > 0) facts.push(`CPU ${percent(Math.min(1, cpu / wall))} of thread time`);
  return <p class="summary">{facts.join(" · ")}</p>;
}

const THEMES: state.Theme[] = ["auto", "light", "dark"];
const THEME_SIGNS = { auto: "◐", light: "☀", dark: "☾" };

function Header({ run, onHelp }: { run: Run; onHelp: () => void }) {
  const runs = state.runs.value;
  const theme = state.theme.value;
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  return (
    <header>
      <div class="title">
        <span class="logo" aria-hidden="true"><i /><i /><i /></span>
        {runs.length > 1 ? (
          <select aria-label="Run" value={state.runIndex.value} onChange={(event) => chooseRun(Number((event.currentTarget as HTMLSelectElement).value))}>
            {runs.map((one, place) => <option key={place} value={place}>{visible(one.data.name)}</option>)}
          </select>
        ) : (
          <h1 title={visible(run.data.name)}>{visible(run.data.name)}</h1>
        )}
        <Facts run={run} />
      </div>
      <Search run={run} />
      <button class="icon" aria-label={`Colours: ${theme}. Change to ${next}`} title={`Colours: ${theme}`} onClick={() => (state.theme.value = next)}>{THEME_SIGNS[theme]}</button>
      <button class="icon" aria-label="Keys and pointer" title="Keys (?)" onClick={onHelp}>?</button>
    </header>
  );
}

function Notes({ run }: { run: Run }) {
  const notes: string[] = [];
  if (!run.data.calls) notes.push("This profile holds sums, not single calls: there is no timeline of it.");
  else if (!run.data.nested) notes.push("Calls of a lane overlap without nesting: they are drawn on extra rows of the lane, and own times of regions are not known.");
  else if (run.data.clamped) notes.push("Some calls of a lane overlap without nesting: they are drawn on extra rows of the lane.");
  return notes.length ? <p class="note" role="note">{notes.join(" ")}</p> : null;
}

function View({ run, tab }: { run: Run; tab: state.Tab }) {
  switch (tab) {
    case "timeline": return <Timeline key={run.index} run={run} />;
    case "flame": return <Flame key={run.index} run={run} />;
    case "regions": return <Regions key={run.index} run={run} />;
    case "threads": return <Threads key={run.index} run={run} />;
    case "tasks": return <Tasks key={run.index} run={run} />;
    case "samples": return <Samples key={run.index} run={run} />;
    case "compare": return <Compare runs={state.runs.value} />;
    case "run": return <About run={run} />;
  }
}

function chooseRun(index: number): void {
  state.select(null);
  state.chosenRegion.value = null;
  state.runIndex.value = index;
  state.showAll();
}

function typing(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement;
  return target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey;
}

function App() {
  const run = state.run.value!;
  const tabs = tabsOf(run);
  const [help, setHelp] = useState(false);
  const tab = tabs.includes(state.tab.value) ? state.tab.value : tabs[0];
  useEffect(() => {
    if (state.tab.value !== tab) state.tab.value = tab;
  }, [tab]);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (typing(event)) return;
      if (event.key === "/") document.getElementById("search")!.focus();
      else if (event.key === "?") setHelp(true);
      else if ((event.key === "n" || event.key === "p") && state.shown.value) state.step(event.key === "n" ? 1 : -1, state.shown.value);
      else if (/^[1-7]$/.test(event.key) && tabs[Number(event.key) - 1]) state.tab.value = tabs[Number(event.key) - 1];
      else return;
      event.preventDefault();
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  });
  return (
    <>
      <Header run={run} onHelp={() => setHelp(true)} />
      <Tabs tabs={tabs} />
      <Notes run={run} />
      <main>
        <div id="panel" role="tabpanel" aria-labelledby={`tab-${tab}`} class={`panel panel-${tab}`}><View run={run} tab={tab} /></div>
        <Details run={run} />
      </main>
      <p class="announce" role="status" aria-live="polite">{state.announcement.value}</p>
      <Help open={help} onClose={() => setHelp(false)} />
    </>
  );
}

async function start(): Promise<void> {
  const host = document.getElementById("app")!;
  try {
    const report = readReport();
    state.exporter.value = report.exporter;
    state.options.value = report.options;
    state.runs.value = await Promise.all(report.runs.map(readRun));
    document.title = `${report.runs.map((run) => visible(run.name)).join(", ")} – scope-profiler`;
    if (report.runs.length > 1) state.tab.value = "compare";
    state.showAll();
    host.textContent = "";
    render(<App />, host);
  } catch (error) {
    host.innerHTML = "<p class=\"loading\" role=\"alert\"></p>";
    host.firstElementChild!.textContent = `This page cannot be shown: ${error instanceof Error ? error.message : String(error)}`;
    throw error;
  }
}

const ready = start();

declare global {
  interface Window {
    /** For scripts that drive the page. */
    scopeProfiler: { ready: Promise<void>; state: typeof state; exposed: typeof exposed; everyLane: typeof everyLane };
  }
}
window.scopeProfiler = { ready, state, exposed, everyLane };
