// Puts the binary in the place of `bin/afresh`, so that no node stands in front of it. Never fails an install: the launcher
// that is there already does as well.
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const { binary } = require("./platform.js");

// Windows needs a name that ends in `.exe`, and others than npm and pnpm may link what a file was when it was packed.
const agent = process.env.npm_config_user_agent || "";
if (process.platform !== "win32" && /^p?npm\//.test(agent)) {
  const place = path.join(__dirname, "bin", "afresh");
  const fresh = `${place}.${process.pid}`;
  try {
    const { path: source } = binary();
    try {
      fs.linkSync(source, fresh);
    } catch {
      fs.copyFileSync(source, fresh);
      fs.chmodSync(fresh, 0o755);
    }
    // A file that is open or linked elsewhere, as in pnpm's store, stays as it is.
    fs.renameSync(fresh, place);
  } catch {
    fs.rmSync(fresh, { force: true });
  }
}
