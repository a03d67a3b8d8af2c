import { svelte } from "@sveltejs/vite-plugin-svelte";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { defineConfig } from "vite";

const OUT = "../static";
/** Types alone: nothing of it is in the bundle. */
const TYPES = "src/lib/api.ts";
const OWN = ["package.json", "package-lock.json", "vite.config.js", "index.html"];

/** The digest of all that the bundle is made from, as `report.py` computes it: path, length and bytes of each file, by path. */
function sourceDigest() {
  const inner = readdirSync("src", { recursive: true, withFileTypes: true });
  const files = inner.filter((one) => one.isFile()).map((one) => join(one.parentPath, one.name).replaceAll("\\", "/"));
  const digest = createHash("sha256");
  for (const path of [...files, ...OWN].filter((one) => one !== TYPES).sort()) {
    const content = readFileSync(path);
    digest.update(`${path}\0${content.length}\0`).update(content);
  }
  return digest.digest("hex");
}

/** Leaves beside the bundle what it was made from, so that a test can tell a stale one without node. */
const recordSources = {
  name: "record-sources",
  closeBundle() {
    writeFileSync(join(OUT, "built_from.json"), `{"sources": "${sourceDigest()}"}\n`);
  },
};

export default defineConfig({
  base: "./",
  plugins: [svelte(), recordSources],
  build: {
    outDir: OUT,
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    rolldownOptions: {
      output: {
        entryFileNames: "viewer.js",
        assetFileNames: "viewer[extname]",
        codeSplitting: false,
      },
    },
  },
});
