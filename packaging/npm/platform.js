// Finds the binary for this machine among the packages that were installed beside this one.
"use strict";

const { packages } = require("./package.json").afresh;

function binary() {
  const key = `${process.platform}-${process.arch}`;
  const name = packages[key];
  if (!name) {
    const known = Object.keys(packages).join(", ");
    return { error: `error: there is no \`afresh\` for ${key}, only for ${known}\nhint: run \`cargo install afresh\`\n` };
  }
  const file = process.platform === "win32" ? "afresh.exe" : "afresh";
  try {
    return { path: require.resolve(`${name}/bin/${file}`) };
  } catch {
    return {
      error:
        `error: the package \`${name}\` is not installed\n` +
        "hint: install without `--omit=optional`; on a Linux without glibc, such as Alpine, run `cargo install afresh`\n",
    };
  }
}

module.exports = { binary };
