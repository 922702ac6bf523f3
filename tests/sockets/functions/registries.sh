#!/bin/sh
# Two models, two wheels and two crates, as the hub, an index of Python packages and a registry of crates at the
# address $1 have them: files below the working directory.
set -eu
mkdir -p index/3/o index/3/t
echo "{\"dl\": \"$1/crates\"}" >index/config.json
for name in one two; do
  mkdir -p "org/$name/resolve/main" "simple/$name" "crates/$name/1.0.0"
  yes "$name" | head -n 5000 >"org/$name/resolve/main/x"

  information=$name-1.0.dist-info
  mkdir "$information"
  yes 'x = 1' | head -n 1000 >"$name.py"
  printf 'Metadata-Version: 2.1\nName: %s\nVersion: 1.0\n' "$name" >"$information/METADATA"
  printf 'Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n' >"$information/WHEEL"
  : >"$information/RECORD"
  python3 -m zipfile -c "simple/$name/$name-1.0-py3-none-any.whl" "$name.py" "$information/"
  echo "<a href=\"$name-1.0-py3-none-any.whl\">$name</a>" >"simple/$name/index.html"

  crate=crates/$name/1.0.0/download
  mkdir -p "$name-1.0.0/src"
  printf '[package]\nname = "%s"\nversion = "1.0.0"\nedition = "2021"\n' "$name" >"$name-1.0.0/Cargo.toml"
  : >"$name-1.0.0/src/lib.rs"
  tar -czf "$crate" "$name-1.0.0"
  sum=$(sha256sum "$crate" | cut -d ' ' -f 1)
  entry='{"name": "%s", "vers": "1.0.0", "deps": [], "features": {}, "yanked": false, "cksum": "%s"}'
  printf "$entry" "$name" "$sum" >"index/3/$(echo "$name" | cut -c 1)/$name"
done
