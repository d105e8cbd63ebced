// Several runs side by side; the first one is what the others are compared with.
import { useMemo, useState } from "preact/hooks";
import { duration, percent, visible } from "./format";
import type { Region, Run } from "./model";
import * as state from "./state";
import { Table, type Column } from "./table";

interface Compared {
  name: string;
  regions: (Region | undefined)[];
}

function compared(runs: Run[]): Compared[] {
  const rows = new Map<string, Compared>();
  runs.forEach((run, place) => {
    for (const region of run.regions) {
      let row = rows.get(region.name);
      if (!row) rows.set(region.name, (row = { name: region.name, regions: new Array(runs.length).fill(undefined) }));
      row.regions[place] = region;
    }
  });
  return [...rows.values()];
}

function change(row: Compared, place: number): number | null {
  const before = row.regions[0]?.total;
  const now = row.regions[place]?.total;
  return before && now !== undefined ? now / before - 1 : null;
}

function Change({ share }: { share: number | null }) {
  if (share === null) return <span class="faint">–</span>;
  const kind = Math.abs(share) < 0.02 ? "same" : share > 0 ? "slower" : "faster";
  const sign = share > 0 ? "+" : share < 0 ? "−" : "";
  return <span class={`change ${kind}`}>{sign}{percent(Math.abs(share))}</span>;
}

/** How many times faster than in the first run: the speedup of the same work, the efficiency of work that grows with the axis. */
function ratios(row: Compared): (number | null)[] {
  const base = row.regions[0];
  return row.regions.map((region) => {
    if (!base || !region) return null;
    return region.mostPerRank > 0 ? base.mostPerRank / region.mostPerRank : null;
  });
}

interface Axis {
  name: string;
  values: number[];
}

function Scaling({ rows, runs, axis, kind }: { rows: Compared[]; runs: Run[]; axis: Axis; kind: "strong" | "weak" }) {
  const top = [...rows].sort((a, b) => (b.regions[0]?.total ?? 0) - (a.regions[0]?.total ?? 0)).slice(0, 6);
  const lines = top.map((row) => ({ row, points: ratios(row) }));
  const ideal = axis.values.map((value) => (kind === "strong" ? value / axis.values[0] : 1));
  const highest = Math.max(...ideal, ...lines.flatMap((line) => line.points.map((point) => point ?? 0)), 1);
  const least = Math.min(...axis.values);
  const most = Math.max(...axis.values);
  const x = (value: number) => 46 + ((value - least) / Math.max(most - least, 1e-9)) * 300;
  const y = (value: number) => 190 - (value / highest) * 170;
  const path = (points: (number | null)[]) =>
    points.map((point, i) => (point === null ? "" : `${i === 0 || points[i - 1] === null ? "M" : "L"}${x(axis.values[i]).toFixed(1)} ${y(point).toFixed(1)}`)).join("");
  const title = kind === "strong" ? "Speedup" : "Weak-scaling efficiency";
  return (
    <figure class="chart">
      <figcaption>{title} by {axis.name}, against {visible(runs[0].data.name)}</figcaption>
      <svg viewBox="0 0 360 220" role="img" aria-label={`${title} of the longest regions by ${axis.name}`}>
        <line x1="46" y1="190" x2="350" y2="190" class="axis-line" />
        <line x1="46" y1="16" x2="46" y2="190" class="axis-line" />
        {[0, highest / 2, highest].map((value) => <text key={value} x="40" y={y(value) + 4} text-anchor="end">{value.toFixed(1)}</text>)}
        {axis.values.map((value, i) => <text key={i} x={x(value)} y="206" text-anchor="middle">{value}</text>)}
        <path d={path(ideal)} class="ideal" />
        {lines.map(({ row, points }) => {
          const colour = `rgb(${[0, 8, 16].map((shift) => ((row.regions[0]?.colour ?? 0) >>> shift) & 255).join(" ")})`;
          return (
            <g key={row.name} style={{ stroke: colour, fill: colour }}>
              <path d={path(points)} fill="none" stroke-width="2" />
              {points.map((point, i) => point !== null && <circle key={i} cx={x(axis.values[i])} cy={y(point)} r="3" />)}
            </g>
          );
        })}
      </svg>
      <ul class="key">
        {lines.map(({ row }) => <li key={row.name}><i style={{ background: `rgb(${[0, 8, 16].map((shift) => ((row.regions[0]?.colour ?? 0) >>> shift) & 255).join(" ")})` }} />{visible(row.name)}</li>)}
        <li class="faint">dashed: ideal</li>
      </ul>
    </figure>
  );
}

export function Compare({ runs }: { runs: Run[] }) {
  const rows = useMemo(() => compared(runs), [runs]);
  const columns = useMemo<Column<Compared>[]>(() => {
    const all: Column<Compared>[] = [{ key: "region", title: "Region", value: (row) => visible(row.name), cell: (row) => <span class="name">{visible(row.name)}</span> }];
    runs.forEach((run, place) => {
      all.push({
        key: `total${place}`, title: visible(run.data.name), about: "Total of its calls", number: true,
        value: (row) => row.regions[place]?.total ?? null, cell: (row) => duration(row.regions[place]?.total),
      });
      if (place > 0) {
        all.push({
          key: `change${place}`, title: "Change", about: `Of its total, against ${visible(runs[0].data.name)}`, number: true,
          value: (row) => change(row, place), cell: (row) => <Change share={change(row, place)} />,
        });
      }
    });
    return all;
  }, [runs]);
  const { axes = [], scaling = "both", links = [] } = state.options.value;
  const [chosen, choose] = useState(0);
  const axis = axes[chosen];
  return (
    <div class="compare">
      <Table label="Regions of all runs" rows={rows} columns={columns} sort="total0" keyOf={(row) => row.name} />
      {axis && (
        <div class="charts">
          {axes.length > 1 && (
            <label class="axes">
              Charts over{" "}
              <select value={chosen} onChange={(event) => choose(Number((event.currentTarget as HTMLSelectElement).value))}>
                {axes.map((one, place) => <option key={one.name} value={place}>{one.name}</option>)}
              </select>
            </label>
          )}
          {scaling !== "weak" && <Scaling rows={rows} runs={runs} axis={axis} kind="strong" />}
          {scaling !== "strong" && <Scaling rows={rows} runs={runs} axis={axis} kind="weak" />}
        </div>
      )}
      {links.length > 0 && (
        <p>Pages of their own: {links.map(([title, href]) => <a key={href} href={href}>{visible(title)}</a>)}</p>
      )}
    </div>
  );
}
