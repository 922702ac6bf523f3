{{/*
Merges .patch into .object, as kustomize does: maps by their keys, lists of what has a name (mounts: a path) by that, and
`$patch: delete` removes an entry. Entries that a patch names come first. Any other value is replaced.
*/}}
{{- define "reclaimd.patched" }}
  {{- range $key, $new := .patch }}
    {{- $old := get $.object $key }}
    {{- if and (kindIs "map" $new) (kindIs "map" $old) }}
      {{- include "reclaimd.patched" (dict "object" $old "patch" $new) }}
    {{- else if and (kindIs "slice" $new) (kindIs "slice" $old) (include "reclaimd.key" (first $new)) }}
      {{- $named := list }}
      {{- $entries := list }}
      {{- range $entry := $new }}
        {{- $name := include "reclaimd.key" $entry }}
        {{- $named = append $named $name }}
        {{- $merged := dict }}
        {{- range $old }}
          {{- if eq (include "reclaimd.key" .) $name }}
            {{- $merged = . }}
          {{- end }}
        {{- end }}
        {{- if not (hasKey $entry "$patch") }}
          {{- include "reclaimd.patched" (dict "object" $merged "patch" $entry) }}
          {{- $entries = append $entries $merged }}
        {{- end }}
      {{- end }}
      {{- range $old }}
        {{- if not (has (include "reclaimd.key" .) $named) }}
          {{- $entries = append $entries . }}
        {{- end }}
      {{- end }}
      {{- $_ := set $.object $key $entries }}
    {{- else }}
      {{- $_ := set $.object $key $new }}
    {{- end }}
  {{- end }}
{{- end }}

{{/* By what an entry of a list is known; empty for one that has no name. */}}
{{- define "reclaimd.key" }}
  {{- if kindIs "map" . }}
    {{- get . "mountPath" | default (get . "name") }}
  {{- end }}
{{- end }}
