#!/usr/bin/env bash
# The chart as a release publishes it: it pulls the image that belongs to it. Prints the archive.
# usage: packaging/chart.sh VERSION REPOSITORY DIGEST DIGEST_WITH_AGENTS FOLDER
set -euo pipefail
version=$1 repository=$2 digest=$3 agents=$4 folder=$5
chart=$(cd "$(dirname "${BASH_SOURCE[0]}")/../charts/pod-safety" && pwd -P)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp -R "$chart" "$scratch/pod-safety"
values=$scratch/pod-safety/values.yaml
sed -i "/^image:/,/^[^ ]/ { s|^  repository: .*|  repository: $repository|; s|^  digest: .*|  digest: $digest| }" "$values"
sed -i "/^    agents:/,/^      path:/ s|^        digest: .*|        digest: $agents|" "$values"
# A value that sed did not find would publish a chart that nobody can install.
grep -qx "  repository: $repository" "$values"
grep -qx "  digest: $digest" "$values"
grep -qx "        digest: $agents" "$values"
# What NOTES tells people to type names this chart, as the registry has it: beside the images.
published="oci://${repository%/*}/charts/pod-safety"
sed -i "s|^  pod-safety.dev/chart: .*|  pod-safety.dev/chart: $published|" "$scratch/pod-safety/Chart.yaml"
grep -qx "  pod-safety.dev/chart: $published" "$scratch/pod-safety/Chart.yaml"
helm package "$scratch/pod-safety" --version "$version" --app-version "$version" --destination "$folder" >&2
echo "$folder/pod-safety-$version.tgz"
