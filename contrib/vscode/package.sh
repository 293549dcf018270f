#!/usr/bin/env bash
# Builds and packages the extension into the folder that is named, and looks at what the package holds. Needs Node 20.
# Nothing is written beside the sources, and nothing is published.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$(mkdir -p "${1:?name a folder}" && cd "$1" && pwd)
rm -rf "$out/sources" && mkdir "$out/sources"
cp -r "$here"/{package.json,tsconfig.json,README.md,.vscodeignore,src,../../LICENSE} "$out/sources"
cd "$out/sources"
npm install --no-audit --no-fund --silent
npm run --silent check
npm run --silent package -- --out "$out/preflight.vsix"
unpacked=$(python3 -c 'import sys, zipfile; print("\n".join(zipfile.ZipFile(sys.argv[1]).namelist()))' "$out/preflight.vsix")
for file in extension/package.json extension/out/extension.js extension/readme.md; do
    grep -qix "$file" <<<"$unpacked" || { echo "the package has no $file"; exit 1; }
done
if grep -qE '^extension/(node_modules|src)/' <<<"$unpacked"; then
    echo "the package holds more than the bundle"
    exit 1
fi
echo "$out/preflight.vsix: $(wc -c <"$out/preflight.vsix") bytes"
