// A table that sorts by any column and draws only the rows in sight.
import { createTable, getCoreRowModel, getSortedRowModel, type ColumnDef, type SortingState, type TableState } from "@tanstack/table-core";
import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "@tanstack/virtual-core";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";

const ROW = 30;

export interface Column<T> {
  key: string;
  title: string;
  /** What the column is, for those who wonder. */
  about?: string;
  value: (row: T) => number | string | null;
  cell?: (row: T) => ComponentChildren;
  number?: boolean;
  /** Numbers are sorted from the largest on at first, unless: */
  ascending?: boolean;
}

interface Properties<T> {
  label: string;
  rows: T[];
  columns: Column<T>[];
  sort: string;
  keyOf: (row: T) => string;
  onOpen?: (row: T) => void;
  isCurrent?: (row: T) => boolean;
}

function descendsFirst<T>(column: Column<T>): boolean {
  return column.number === true && !column.ascending;
}

function compare(a: number | string | null, b: number | string | null): number {
  if (a === null || b === null) return a === b ? 0 : a === null ? -1 : 1;
  if (typeof a === "string" || typeof b === "string") return String(a).localeCompare(String(b), "en", { numeric: true });
  return a - b;
}

function useSorted<T>(rows: T[], columns: Column<T>[], sorting: SortingState): T[] {
  return useMemo(() => {
    const definitions: ColumnDef<T>[] = columns.map((column) => ({
      id: column.key,
      accessorFn: column.value,
      sortingFn: (a, b, id) => compare(a.getValue(id), b.getValue(id)),
      sortUndefined: "last",
    }));
    const table = createTable<T>({
      data: rows, columns: definitions, state: { sorting } as Partial<TableState>, onStateChange: () => {}, renderFallbackValue: null,
      getCoreRowModel: getCoreRowModel(), getSortedRowModel: getSortedRowModel(),
    });
    table.setOptions((previous) => ({ ...previous, state: { ...table.initialState, sorting } }));
    return table.getSortedRowModel().rows.map((row) => row.original);
  }, [rows, columns, sorting]);
}

export function Table<T>({ label, rows, columns, sort, keyOf, onOpen, isCurrent }: Properties<T>) {
  const [sorting, setSorting] = useState<SortingState>(() => {
    const column = columns.find((one) => one.key === sort) ?? columns[0];
    return [{ id: column.key, desc: descendsFirst(column) }];
  });
  const box = useRef<HTMLDivElement>(null);
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  const sorted = useSorted(rows, columns, sorting);
  const virtualizer = useMemo(
    () =>
      new Virtualizer<HTMLDivElement, Element>({
        count: 0, getScrollElement: () => box.current, estimateSize: () => ROW, overscan: 12, scrollToFn: elementScroll,
        observeElementRect, observeElementOffset, onChange: () => redraw(0),
      }),
    [],
  );
  virtualizer.setOptions({ ...virtualizer.options, count: sorted.length });
  useEffect(() => virtualizer._didMount(), []);
  useEffect(() => virtualizer._willUpdate());
  const items = virtualizer.getVirtualItems();
  const before = items.length ? items[0].start : 0;
  const after = items.length ? virtualizer.getTotalSize() - items.at(-1)!.end : 0;
  const sortBy = (column: Column<T>) => {
    const now = sorting[0];
    setSorting([{ id: column.key, desc: now.id === column.key ? !now.desc : descendsFirst(column) }]);
  };
  const move = (event: KeyboardEvent) => {
    const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    const row = (event.target as HTMLElement).closest<HTMLElement>("tr[data-index]");
    if (by === 0 || !row) return;
    event.preventDefault();
    const to = Number(row.dataset.index) + by;
    if (to < 0 || to >= sorted.length) return;
    virtualizer.scrollToIndex(to);
    requestAnimationFrame(() => box.current?.querySelector<HTMLElement>(`tr[data-index="${to}"] button`)?.focus());
  };
  return (
    <div class="table-box" ref={box} onKeyDown={move} tabIndex={-1}>
      <table aria-label={label} aria-rowcount={sorted.length + 1}>
        <thead>
          <tr>
            {columns.map((column) => {
              const now = sorting[0].id === column.key ? (sorting[0].desc ? "descending" : "ascending") : undefined;
              return (
                <th key={column.key} aria-sort={now ?? "none"} class={column.number ? "number" : ""} scope="col" data-column={column.key}>
                  <button title={column.about} onClick={() => sortBy(column)}>
                    {column.title}
                    <span class="arrow" aria-hidden="true">{now === "descending" ? "▼" : now === "ascending" ? "▲" : ""}</span>
                  </button>
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>
          {before > 0 && <tr class="space" aria-hidden="true" style={{ height: `${before}px` }}><td /></tr>}
          {items.map((item) => {
            const row = sorted[item.index];
            return (
              <tr key={keyOf(row)} data-index={item.index} aria-rowindex={item.index + 2} class={isCurrent?.(row) ? "current" : ""} onClick={() => onOpen?.(row)}>
                {columns.map((column, place) => {
                  const content = column.cell ? column.cell(row) : (column.value(row) ?? "–");
                  return (
                    <td key={column.key} class={column.number ? "number" : ""}>
                      {place === 0 && onOpen ? <button class="link">{content}</button> : content}
                    </td>
                  );
                })}
              </tr>
            );
          })}
          {after > 0 && <tr class="space" aria-hidden="true" style={{ height: `${after}px` }}><td /></tr>}
        </tbody>
      </table>
      {sorted.length === 0 && <p class="empty">Nothing to show.</p>}
    </div>
  );
}
