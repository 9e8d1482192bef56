{{- /* What a policy does: "Audit", "Deny" or "Off". Takes (root, its key). */ -}}
{{- define "pod-safety.action" -}}
{{- $policies := (index . 0).Values.admissionPolicies -}}
{{- default $policies.action (get $policies (index . 1)) -}}
{{- end }}

{{- /* The version of MutatingAdmissionPolicy that this cluster has; empty: none. */ -}}
{{- define "pod-safety.mutating" -}}
{{- range list "v1" "v1beta1" -}}
{{- if $.Capabilities.APIVersions.Has (printf "admissionregistration.k8s.io/%s/MutatingAdmissionPolicy" .) -}}
admissionregistration.k8s.io/{{ . }}{{ break }}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "pod-safety.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "pod-safety.serviceAccount" . }}
{{- end }}

{{- /*
Name and labels. Takes (root, suffix).
*/ -}}
{{- define "pod-safety.policyMeta" -}}
{{- $root := index . 0 -}}
name: {{ include "pod-safety.fullname" $root }}-{{ index . 1 }}
labels:
  {{- include "pod-safety.labels" $root | nindent 2 }}
{{- end }}

{{- /* These users are exempt. A JSON list of strings is a CEL list too. Takes (root, more users). */ -}}
{{- define "pod-safety.notExempt" -}}
{{- $root := index . 0 -}}
{{- $users := concat (list (include "pod-safety.user" $root)) (default list $root.Values.admissionPolicies.exemptUsers) (index . 1) | uniq -}}
- name: not-exempt
  expression: {{ printf "!(request.userInfo.username in %s)" (toJson $users) | quote }}
{{- end }}

{{- /* The namespaces whose FenceDevices are used, as a list of CEL in single quotes. */ -}}
{{- define "pod-safety.fencingNamespaces" -}}
{{- concat (list .Release.Namespace) (default list .Values.controllers.fencing.namespaces) | uniq | toJson | replace "\"" "'" -}}
{{- end }}

{{- /* A person's reason in an annotation. Takes the object's name in CEL. */ -}}
{{- define "pod-safety.reason" -}}
has({{ . }}.metadata.annotations) && 'pod-safety.dev/break-glass' in {{ . }}.metadata.annotations && {{ . }}.metadata.annotations['pod-safety.dev/break-glass'].trim() != ''
{{- end }}

{{- /* How many containers of a pod run, by its status. Takes the object's name in CEL. */ -}}
{{- define "pod-safety.running" -}}
{{- $object := . -}}
{{- range $index, $field := list "containerStatuses" "initContainerStatuses" "ephemeralContainerStatuses" }}
{{- if $index }} + {{ end -}}
(has({{ $object }}.status.{{ $field }}) ? {{ $object }}.status.{{ $field }}.filter(c, has(c.state) && has(c.state.running)).size() : 0)
{{- end }}
{{- end }}

{{- /*
What a kubelet reported of a pod's containers, as Pod::container_states: the state of each, and how often it was restarted. Takes the
object's name in CEL.
*/ -}}
{{- define "pod-safety.containerStates" -}}
{{- $object := . -}}
{{- range $index, $field := list "containerStatuses" "initContainerStatuses" "ephemeralContainerStatuses" }}
{{- if $index }} + {{ end -}}
(has({{ $object }}.status.{{ $field }}) ? {{ $object }}.status.{{ $field }}.map(c, [!has(c.state) ? 'waiting' : has(c.state.running) ? 'running' : has(c.state.terminated) ? 'terminated' : 'waiting', string(c.restartCount)]) : [])
{{- end }}
{{- end }}

{{- /*
Whether the replacement of a pod has its name or its volumes, as in Pod::keeps_identity: its controller is a StatefulSet or of a
kind that Kubernetes does not have. ownerReferences can be removed. The hostname that such a controller gives its pods cannot be.
Takes the object's name in CEL.
*/ -}}
{{- define "pod-safety.keepsIdentity" -}}
(has({{ . }}.metadata.ownerReferences) && {{ . }}.metadata.ownerReferences.exists(r, has(r.controller) && r.controller && (r.kind == 'StatefulSet' || r.apiVersion.contains('/') && !(r.apiVersion.split('/')[0] in ['apps', 'batch', 'extensions'])))
|| has({{ . }}.spec.hostname) && {{ . }}.spec.hostname == {{ . }}.metadata.name)
{{- end }}

{{- /* Whether two maps are the same but for some keys. Takes (one, another, keys) as CEL. */ -}}
{{- define "pod-safety.same" -}}
{{- $a := index . 0 }}{{ $b := index . 1 }}{{ $but := index . 2 -}}
{{ $a }}.all(k, k in {{ $but }} || (k in {{ $b }} && {{ $a }}[k] == {{ $b }}[k])) && {{ $b }}.all(k, k in {{ $but }} || k in {{ $a }})
{{- end }}

{{- /*
The binding that puts a policy into force. Takes (root, suffix, key). exemptNamespaces is for pods and StatefulSets: the policies
on pod-safety's custom resources and on its own account hold in every namespace.
*/ -}}
{{- define "pod-safety.binding" -}}
{{- $root := index . 0 -}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  {{- include "pod-safety.policyMeta" . | nindent 2 }}
spec:
  policyName: {{ include "pod-safety.fullname" $root }}-{{ index . 1 }}
  {{- if eq (include "pod-safety.action" (list $root (index . 2))) "Deny" }}
  validationActions: [Deny, Audit]
  {{- else }}
  validationActions: [Warn, Audit]
  {{- end }}
  {{- if not (has (index . 2) (list "evidence" "fence" "ownAccount" "podReport" "evictionStates" "evictionRequesters")) }}
  {{- with $root.Values.admissionPolicies.exemptNamespaces }}
  matchResources:
    namespaceSelector:
      matchExpressions:
        - { key: kubernetes.io/metadata.name, operator: NotIn, values: {{ toJson . }} }
  {{- end }}
  {{- end }}
{{- end }}

{{- /*
The users that may delete Nodes whose machine is gone, as a JSON list: admissionPolicies.nodeDeleters, with the users of a
component in place of its name.
*/ -}}
{{- define "pod-safety.nodeDeleters" -}}
{{- $components := dict -}}
{{- range .Files.Get "files/node-deleters.yaml" | fromYamlArray }}{{ $_ := set $components .name .users }}{{ end -}}
{{- $users := list -}}
{{- range default list .Values.admissionPolicies.nodeDeleters -}}
{{- $users = concat $users (default (list (trimPrefix "user:" .)) (get $components .)) -}}
{{- end -}}
{{- uniq $users | toJson -}}
{{- end }}

{{- /* The users that may add the taint out-of-service to a node that does not report, as a JSON list. */ -}}
{{- define "pod-safety.outOfServiceTainters" -}}
{{- $users := list -}}
{{- range default list .Values.admissionPolicies.outOfServiceTainters }}{{ $users = append $users (trimPrefix "user:" .) }}{{ end -}}
{{- uniq $users | toJson -}}
{{- end }}
