#!/bin/sh
# install.sh NPM SOURCE TARGET: the packages of SOURCE's lock file in TARGET/node_modules. The build directory of a package
# build is used once, so a second time costs nothing from npm's cache.
set -eu
mkdir -p "$3"
cp "$2/package.json" "$2/package-lock.json" "$2/.npmrc" "$3"
cd "$3"
exec "$1" ci --ignore-scripts --prefer-offline --no-audit --no-fund --loglevel=error
