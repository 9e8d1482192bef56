{{- define "pod-safety.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "pod-safety.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "pod-safety.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "pod-safety.selector" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "pod-safety.serviceAccount" -}}
{{- default (include "pod-safety.fullname" .) .Values.serviceAccount.name -}}
{{- end }}

{{- /*
The name of an image: a registry replaces the one in its repository, which is a first part with a dot or a port. Takes (root,
image).
*/ -}}
{{- define "pod-safety.imageName" -}}
{{- $root := index . 0 -}}
{{- with index . 1 -}}
{{- $repository := .repository -}}
{{- with default (default "" .registry) (default dict $root.Values.global).imageRegistry -}}
{{- $repository = printf "%s/%s" . (regexReplaceAll "^([^/]*[.:][^/]*|localhost)/" $repository "") -}}
{{- end -}}
{{- if .digest }}{{ $repository }}@{{ .digest }}{{ else }}{{ $repository }}:{{ default $root.Chart.AppVersion .tag }}{{ end -}}
{{- end -}}
{{- end }}

{{- define "pod-safety.image" -}}
{{- include "pod-safety.imageName" (list . .Values.image) -}}
{{- end }}

{{- /* The socket on which the controllers send orders to the fence agents. */ -}}
{{- define "pod-safety.agentsSocket" -}}
/run/fence-agents/agents.sock
{{- end }}

{{- /* "yes" if the fence agents sidecar is needed: in `observe` no device is asked. */ -}}
{{- define "pod-safety.runsAgents" -}}
{{- with .Values.controllers.fencing -}}
{{- if and .enabled .agents.enabled (ne $.Values.mode "observe") }}yes{{ end -}}
{{- end -}}
{{- end }}

{{- define "pod-safety.agentsImage" -}}
{{- $image := .Values.image -}}
{{- with .Values.controllers.fencing.agents.image -}}
{{- $registry := ternary "" $image.registry (not (empty .repository)) -}}
{{- $tag := default (printf "%s-agents" (default $.Chart.AppVersion $image.tag)) .tag -}}
{{- $own := dict "registry" $registry "repository" (default $image.repository .repository) "tag" $tag "digest" .digest -}}
{{- include "pod-safety.imageName" (list $ $own) -}}
{{- end -}}
{{- end }}

{{- /* "yes" if the controller of evictions is on: with `auto` where the API server has EvictionRequests. */ -}}
{{- define "pod-safety.eviction" -}}
{{- $enabled := toString .Values.controllers.eviction.enabled -}}
{{- if or (eq $enabled "true") (and (eq $enabled "auto") (.Capabilities.APIVersions.Has "lifecycle.k8s.io/v1alpha1")) }}yes{{ end -}}
{{- end }}

{{- /* The controllers that are on, by the binary's names, which are those of their values in kebab case. */ -}}
{{- define "pod-safety.controllers" -}}
{{- $names := list -}}
{{- $ordered := list "podGc" "disruption" "nodeLifecycle" "taintEviction" "fencing" "volumeGuard" -}}
{{- range $key := concat $ordered (keys .Values.controllers | sortAlpha) | uniq -}}
{{- $enabled := (get $.Values.controllers $key).enabled -}}
{{- if eq $key "eviction" }}{{ $enabled = include "pod-safety.eviction" $ }}{{ end -}}
{{- if $enabled }}{{ $names = append $names (kebabcase $key) }}{{ end -}}
{{- end -}}
{{- join "," $names -}}
{{- end }}

{{- /* What kube-controller-manager must leave to us: its --controllers without the twins of those that are on. */ -}}
{{- define "pod-safety.kcm" -}}
{{- $twins := list "*" "bootstrapsigner" "tokencleaner" -}}
{{- with .Values.controllers -}}
{{- if .podGc.enabled }}{{ $twins = append $twins "-pod-garbage-collector-controller" }}{{ end -}}
{{- if .disruption.enabled }}{{ $twins = append $twins "-disruption-controller" }}{{ end -}}
{{- if .nodeLifecycle.enabled }}{{ $twins = append $twins "-node-lifecycle-controller" }}{{ end -}}
{{- if .taintEviction.enabled }}{{ $twins = append $twins "-taint-eviction-controller" }}{{ end -}}
{{- end -}}
{{- join "," $twins -}}
{{- end }}

{{- /* "yes" if a kube-controller-manager that runs as a pod, as on kubeadm, has these flags. If no such pod is visible, it is unknown. */ -}}
{{- define "pod-safety.kcmLeavesIt" -}}
{{- $root := . -}}
{{- $told := "" -}}
{{- range (lookup "v1" "Pod" "kube-system" "").items -}}
{{- if eq "kube-controller-manager" (get (default dict .metadata.labels) "component") -}}
{{- $told = "yes" -}}
{{- $command := printf "%s," (join "," (concat (default list (first .spec.containers).command) (default list (first .spec.containers).args))) -}}
{{- range splitList "," (include "pod-safety.kcm" $root) -}}
{{- if not (contains (printf "%s," .) $command) }}{{ $told = "" }}{{ break }}{{ end -}}
{{- end -}}
{{- if not $told }}{{ break }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $told -}}
{{- end }}

{{- /* Every flag that has a value, even where the value is the binary's default, so that the effective flags can be read. */ -}}
{{- define "pod-safety.args" -}}
- --mode={{ .Values.mode }}
- --controllers={{ include "pod-safety.controllers" . }}
{{- with .Values.controllers.podGc }}
- --terminated-pod-gc-threshold={{ .terminatedPodThreshold | int64 }}
- --pod-gc-quarantine={{ .quarantine }}
- --trust-out-of-service-taint={{ .trustOutOfServiceTaint }}
{{- end }}
- --agent-reports-from={{ and .Values.agent.enabled .Values.agent.reports | ternary .Release.Namespace "" }}
- --stale-pod-disruption-timeout={{ .Values.controllers.disruption.stalePodTimeout }}
{{- with .Values.controllers.nodeLifecycle }}
- --node-monitor-grace-period={{ .monitorGracePeriod }}
- --node-startup-grace-period={{ .startupGracePeriod }}
{{- if .suspectAfter }}
- --node-suspect-after={{ .suspectAfter }}
{{- end }}
- --node-eviction-rate={{ .evictionRate }}
- --secondary-node-eviction-rate={{ .secondaryEvictionRate }}
- --large-cluster-size-threshold={{ .largeClusterSizeThreshold | int64 }}
- --unhealthy-zone-threshold={{ .unhealthyZoneThreshold }}
{{- end }}
- --fencing-namespaces={{ join "," (concat (list .Release.Namespace) (default list .Values.controllers.fencing.namespaces) | uniq) }}
- --fencing-history={{ .Values.controllers.fencing.history }}
{{- if include "pod-safety.runsAgents" . }}
- --fence-agents-socket={{ include "pod-safety.agentsSocket" . }}
{{- else }}
- --fence-agents-path=
{{- end }}
{{- with .Values.controllers.volumeGuard.storageClasses }}
- --exclusive-storage-classes={{ join "," . }}
{{- end }}
{{- with .Values.controllers.volumeGuard.csiDrivers }}
- --exclusive-csi-drivers={{ join "," . }}
{{- end }}
{{- with .Values.controllers.volumeGuard.exclusiveBackends }}
- --exclusive-backends={{ join "," . }}
{{- end }}
{{- with .Values.leaderElection }}
- --leader-elect={{ .enabled }}
- --leader-elect-lease-duration={{ .leaseDuration }}
- --leader-elect-renew-deadline={{ .renewDeadline }}
- --leader-elect-retry-period={{ .retryPeriod }}
- --leader-elect-resource-name=pod-safety
- --leader-elect-resource-namespace={{ .namespace }}
{{- end }}
- --admin-address=0.0.0.0:{{ .Values.adminPort | int64 }}
{{- if .Values.adminTlsSecret }}
- --tls-cert-file=/etc/pod-safety/tls/tls.crt
- --tls-private-key-file=/etc/pod-safety/tls/tls.key
{{- end }}
- --serve-debug={{ kindIs "bool" .Values.serveDebug | ternary .Values.serveDebug (not .Values.hostNetwork) }}
- --log-format={{ .Values.log.format }}
- --log-level={{ .Values.log.level }}
{{- with .Values.tracing.endpoint }}
- --otlp-endpoint={{ . }}
{{- end }}
{{- end }}

{{- /* How a ServiceMonitor or PodMonitor reads the admin port. */ -}}
{{- define "pod-safety.scheme" -}}
{{- if .Values.adminTlsSecret }}
scheme: https
tlsConfig:
  {{- with .Values.metrics.tlsConfig }}
  {{- toYaml . | nindent 2 }}
  {{- else }}
  serverName: {{ include "pod-safety.fullname" . }}.{{ .Release.Namespace }}.svc
  ca: { secret: { name: {{ .Values.adminTlsSecret }}, key: ca.crt } }
  {{- end }}
{{- end }}
{{- end }}

{{- /* A duration such as 1m30s in milliseconds. */ -}}
{{- define "pod-safety.milliseconds" -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+(ms|s|m|h)" . -1 -}}
{{- $unit := regexFind "[a-z]+" . -}}
{{- $each := dict "ms" 1.0 "s" 1000.0 "m" 60000.0 "h" 3600000.0 -}}
{{- $sum = addf $sum (mulf (trimSuffix $unit . | float64) (get $each $unit)) -}}
{{- end -}}
{{- $sum -}}
{{- end }}
