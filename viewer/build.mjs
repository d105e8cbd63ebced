// node build.mjs NODE_MODULES [OUTPUT]: the viewer as one page, with the mark where the writer of a report puts the data
// (src/formats/html_report.h). Without OUTPUT, into the source distribution that meson is making.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const [modules, output = join(process.env.MESON_DIST_ROOT ?? ".", "viewer", "page.html")] = process.argv.slice(2);
const esbuild = createRequire(join(resolve(modules), "x.js"))("esbuild");

const bundle = await esbuild.build({
  absWorkingDir: here,
  entryPoints: ["src/main.tsx"],
  bundle: true,
  write: false,
  outdir: "out",
  minify: true,
  format: "iife",
  target: ["chrome110", "firefox115", "safari16.4"],
  jsx: "automatic",
  jsxImportSource: "preact",
  nodePaths: [resolve(modules)],
  define: { "process.env.NODE_ENV": '"production"' },
  legalComments: "none",
  charset: "ascii",
  metafile: true,
  logLevel: "warning",
});
const script = bundle.outputFiles.find((file) => file.path.endsWith(".js")).text.trim();
const style = bundle.outputFiles.find((file) => file.path.endsWith(".css")).text.trim();
if (/<\/script|<!--/i.test(script)) throw new Error("the bundle holds something that ends a script element");

// The packages that are in the bundle, each with its licence.
function licences() {
  const found = new Set();
  for (const input of Object.keys(bundle.metafile.inputs)) {
    const parts = input.split("node_modules/");
    if (parts.length < 2) continue;
    const path = parts.at(-1).split("/");
    found.add(path[0].startsWith("@") ? `${path[0]}/${path[1]}` : path[0]);
  }
  return [...found].sort().map((name) => {
    const directory = join(modules, name);
    const about = JSON.parse(readFileSync(join(directory, "package.json"), "utf8"));
    const file = readdirSync(directory).find((entry) => /^licen[cs]e/i.test(entry));
    if (!file || !about.license) throw new Error(`${name} comes without a licence`);
    const text = readFileSync(join(directory, file), "utf8").trim();
    return `${name} ${about.version} (${about.license})\n\n${text}\n`;
  });
}

const hash = createHash("sha256").update(script).digest("base64");
const policy = `default-src 'none'; script-src 'sha256-${hash}'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'`;
const fill = {
  policy,
  style,
  script,
  licences: licences().join("\n" + "-".repeat(80) + "\n\n").replaceAll("<", "‹").replaceAll(">", "›"),
};
const template = readFileSync(join(here, "page.template.html"), "utf8");
writeFileSync(output, template.replace(/\{\{(\w+)\}\}/g, (_, key) => fill[key]));
