// Where the npm packages are: in the cache, not beside these files, so that the repository has no
// node_modules.
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const cache = process.env.INTEROP_CACHE ?? fileURLToPath(new URL('../../target/interop', import.meta.url));

export const packages = `${cache}/npm/node_modules`;
export const load = createRequire(`${cache}/npm/package.json`);
