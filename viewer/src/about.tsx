// What is known about the run, and the keys.
import { useEffect, useRef } from "preact/hooks";
import { duration, visible } from "./format";
import type { Run } from "./model";
import type { Value } from "./report";
import * as state from "./state";

function words(value: Value): string {
  if (Array.isArray(value)) return value.map((part) => visible(part)).join("\n");
  return value === null ? "–" : visible(String(value));
}

export function About({ run }: { run: Run }) {
  return (
    <div class="about">
      <dl class="facts wide">
        <div class="fact"><dt>time of the calls</dt><dd>{duration(run.to - run.from)}</dd></div>
        {run.data.metadata.map(([key, value]) => (
          <div class="fact" key={key}><dt>{visible(key)}</dt><dd>{words(value)}</dd></div>
        ))}
      </dl>
      <h3>This page</h3>
      <p class="faint">Written by {state.exporter.value}. It holds the profile and fetches nothing.</p>
      <details>
        <summary>Licences of the libraries in this page</summary>
        <pre tabIndex={0}>{document.getElementById("sp-licences")?.textContent?.trim()}</pre>
      </details>
    </div>
  );
}

const KEYS: [string, string][] = [
  ["← →  or  a d", "move in time"],
  ["+ −  or  w s", "zoom"],
  ["0", "show the whole run"],
  ["↑ ↓  Page Up  Page Down", "scroll the lanes"],
  ["Enter", "select a call"],
  ["Shift + ← →", "the call before or after it in its row"],
  ["Shift + ↑ ↓", "the call around it, the first call inside it"],
  ["f", "zoom to the selected call"],
  ["/", "search"],
  ["n  p", "next and previous call that the search finds"],
  ["1 … 7", "the views"],
  ["Esc", "let go of the selection"],
  ["drag", "move in time and along the lanes"],
  ["Ctrl + wheel, or pinch", "zoom where the pointer is"],
  ["Shift + wheel", "move in time"],
  ["double click", "zoom to a call"],
];

export function Help({ open, onClose }: { open: boolean; onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (open && !dialog.current!.open) dialog.current!.showModal();
    if (!open && dialog.current!.open) dialog.current!.close();
  }, [open]);
  return (
    <dialog ref={dialog} class="help" aria-labelledby="help-title" onClose={onClose} onClick={(event) => event.target === dialog.current && onClose()}>
      <h2 id="help-title">Keys and pointer</h2>
      <table>
        <tbody>
          {KEYS.map(([key, meaning]) => <tr key={key}><th scope="row"><kbd>{key}</kbd></th><td>{meaning}</td></tr>)}
        </tbody>
      </table>
      <p class="legend">
        <span class="sample solid" aria-hidden="true" /> running
        <span class="sample hatched" aria-hidden="true" /> awaiting
      </p>
      <p class="faint">The solid height of a block is the share of its time that it ran. Faint columns are many short calls in one pixel: the stronger, the more of the pixel they cover.</p>
      <button onClick={onClose}>Close</button>
    </dialog>
  );
}
