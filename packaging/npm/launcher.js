#!/usr/bin/env node
// The command `afresh` of the npm package. Where node can replace itself by the binary, it does; else it starts the
// binary, passes signals on, and ends as the binary does. `install.js` puts the binary in this file's place where it may.
"use strict";

const { spawn } = require("node:child_process");
const { accessSync, constants } = require("node:fs");
const { constants: { signals } } = require("node:os");
const { isatty } = require("node:tty");
const { binary } = require("../platform.js");

const found = binary();
if (found.error) {
  process.stderr.write(found.error);
  process.exit(5);
}
const words = process.argv.slice(2);

if (typeof process.execve === "function" && process.platform !== "win32") {
  try {
    accessSync(found.path, constants.X_OK);
    // The process stays the same: nothing stands between the client and the binary.
    process.execve(found.path, [found.path, ...words], process.env);
  } catch {
    // A node that cannot: the binary is started below.
  }
}

// By this variable the binary knows whose end is its own: SIGKILL cannot be passed on.
const env = { ...process.env, AFRESH_LAUNCHER_PID: String(process.pid) };
const child = spawn(found.path, words, { stdio: "inherit", env, windowsHide: true });

const passedOn = ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"];
// A terminal sends Ctrl+C to both, and the binary takes a second one as "at once": it is not passed on twice. A client
// that has a terminal for stderr alone sends SIGINT to this process; where a terminal sent it then, the binary counts the
// two as one key press, since they come at the same time.
const isOnTerminal = isatty(0);
for (const signal of passedOn) {
  process.on(signal, () => {
    if (signal !== "SIGINT" || !isOnTerminal) {
      child.kill(signal);
    }
  });
}

child.on("error", (error) => {
  process.stderr.write(`error: cannot run \`${found.path}\`: ${error.message}\nhint: install the package again\n`);
  process.exit(5);
});
child.on("exit", (code, signal) => {
  if (signal === null) {
    process.exit(code);
  }
  for (const name of passedOn) {
    process.removeAllListeners(name);
  }
  // The same end, so that the caller sees the signal, too.
  process.kill(process.pid, signal);
  // One that node does not end by.
  setTimeout(() => process.exit(128 + signals[signal]), 100);
});
