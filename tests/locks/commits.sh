#!/bin/sh
# The messages of new commits: `area: what changes`, imperative, at most 72 characters, and a body that says cause, effect and test.
# Commits up to FIRST are not judged. A clone without history does not have FIRST, and nothing is judged there.
set -eu
FIRST=${1:-9461413f6552}
# The first word of a subject. A verb that fits and is missing belongs here.
VERBS=" accept add allow answer apply ask assert await bound build bump calculate call carry change check clear close collect commit
compare compile complete compute confirm count cover cut decide declare decode delete deny derive detect do document draw drive drop end
enforce enqueue evict exclude expect explain export expose fail find fix follow forbid format free gate generate give grant handle hold honour
ignore implement import include index inline install invert judge keep label let lift limit link list load lock log look make mark match
measure mend merge move name note observe offer open order pass pin play prefer prepare print probe prove publish put quote raise read
recognise record reduce refuse register release remove rename replace report request require reserve reset restore retry return review
revert run say search see select send separate serve set share show shorten simplify skip sort split start state stop store strip switch
take teach tell test tighten tolerate track treat trial trust try turn type unify update use validate verify wait walk warn watch weigh
withdraw word wrap write "
git rev-parse --quiet --verify "$FIRST^{commit}" >/dev/null || { echo "no commit $FIRST here: messages are not judged" >&2; exit 0; }
wrong=0
for commit in $(git log --no-merges --format=%h "$FIRST..HEAD"); do
  subject=$(git log -1 --format=%s "$commit")
  say() { echo "$commit $subject: $1" >&2; wrong=1; }
  verb=$(printf '%s' "$subject" | sed -n 's/^[a-z][a-z0-9, -]*: \([a-z]*\) .*/\1/p')
  [ "${#subject}" -le 72 ] || say "more than 72 characters"
  [ -n "$verb" ] || say "not of the form \`area: what changes\`"
  case $VERBS in *[[:space:]]"$verb"[[:space:]]*) ;; *) [ -z "$verb" ] || say "\`$verb\` is none of the verbs in $0" ;; esac
  [ -n "$(git log -1 --format=%b "$commit" | tr -d '[:space:]')" ] || say "no body with cause, effect and test"
done
exit "$wrong"
