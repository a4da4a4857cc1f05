import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { defineConfig } from "vite";

const HERE = import.meta.dirname;
const OUT = join(HERE, "../src/syntony/api/console");

/** Files that decide what the bundle is, relative to this folder, sorted by path. */
function sources() {
  const found = ["index.html", "package.json", "package-lock.json", "tsconfig.json", "vite.config.js"];
  for (const entry of readdirSync(join(HERE, "src"), { recursive: true, withFileTypes: true }))
    if (entry.isFile())
      found.push(relative(HERE, join(entry.parentPath, entry.name)).split(sep).join("/"));
  return found.sort();
}

/** Write `manifest.json` with a hash over the sources: tests/console/test_bundle.py compares it,
 *  so that a forgotten rebuild fails without Node. */
function manifest() {
  let out = OUT;
  return {
    name: "manifest",
    apply: "build",
    configResolved(config) {
      out = config.build.outDir;
    },
    closeBundle() {
      const hash = createHash("sha256");
      for (const name of sources())
        hash.update(`${name}\0`).update(readFileSync(join(HERE, name))).update("\0");
      const text = JSON.stringify({ sources: hash.digest("hex") }, null, 2);
      writeFileSync(join(out, "manifest.json"), `${text}\n`);
    },
  };
}

export default defineConfig({
  base: "./",
  // Tags and styles are files of their own origin: the page's CSP is `default-src 'self'`.
  build: { outDir: OUT, emptyOutDir: true, assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  plugins: [manifest()],
  server: { proxy: { "/api": process.env["SYNTONY_API"] ?? "http://127.0.0.1:8787" } },
});
