{{- define "muster-edge.labels" -}}
app.kubernetes.io/part-of: muster
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | splitList "@" | first | quote }}
{{- end }}

{{- define "muster-edge.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* What Pod Security's level restricted asks of a container, and a root that can't be written to. */}}
{{- define "muster-edge.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "muster-edge.tokenSecret" -}}
{{ .Values.join.tokenSecret | default "muster-edge-join" }}
{{- end }}

{{- define "muster-edge.onNodes" -}}
{{ if or .Values.features.host .Values.features.logs }}true{{ end }}
{{- end }}

{{- define "muster-edge.check" -}}
{{- if not .Values.join.servers }}{{ fail "join.servers: name the gateways, HOST:PORT; `muster token create` prints one" }}{{ end }}
{{- if not .Values.join.caHash }}{{ fail "join.caHash: give the hash of the fleet's CA; `muster token create` prints it" }}{{ end }}
{{- if and (not .Values.join.token) (not .Values.join.tokenSecret) }}{{ fail "join.token: give the token of `muster token create`, or name a Secret that holds it in join.tokenSecret" }}{{ end }}
{{- if not (has .Values.kubeStateMetrics.mode (list "auto" "deploy" "existing")) }}{{ fail (printf "kubeStateMetrics.mode: %q: want auto, deploy or existing" .Values.kubeStateMetrics.mode) }}{{ end }}
{{- if eq .Values.hostNamespace .Release.Namespace }}{{ fail "hostNamespace: want another namespace than the release's: what runs on every node can't be restricted" }}{{ end }}
{{- end }}

{{- define "muster-edge.config" -}}
# Written by the chart; `muster-edge config sample` has every field.
stateDir: /var/lib/muster-edge
gateways: {{ .Values.join.servers | toJson }}
caHash: {{ .Values.join.caHash | quote }}
tokenFile: /etc/muster-join/token
site: {{ .Values.site | quote }}
# The nodes' own, not those of this pod.
hostMetrics: false
probeListen: ":9108"
{{- if .Values.features.logs }}
logsListen: ":9107"
{{- end }}
kubernetes:
  enabled: true
  discovery: {{ .Values.features.metrics }}
  namespace: {{ .Release.Namespace }}
  stateSecret: muster-edge-identity
{{- if include "muster-edge.onNodes" . }}
  hostNamespace: {{ .Values.hostNamespace }}
  hostSecret: muster-edge-host
{{- end }}
{{- if and .Values.features.metrics (eq .Values.kubeStateMetrics.mode "auto") }}
  kubeStateMetrics: kube-state-metrics
{{- end }}
  hostMetrics: {{ .Values.features.host }}
{{- if .Values.verifyKubelets }}
  verifyKubelets: true
{{- end }}
  tenantPods: {{ .Values.tenantPods }}
  workloads: {{ .Values.features.workloads }}
{{- if .Values.features.virtualhosts }}
  virtualHosts: true
{{- end }}
{{- if .Values.features.upgrades }}
software: {components: {agent: {driver: kubernetes}}}
{{- end }}
{{- if .Values.features.resets }}
factoryReset: {enabled: true}
{{- end }}
log: {level: {{ .Values.logLevel }}, format: logfmt}
{{- end }}

{{/* The ports of the gateways, each once. */}}
{{- define "muster-edge.gatewayPorts" -}}
{{- $ports := list }}
{{- range .Values.join.servers }}{{ $ports = append $ports (. | splitList ":" | last | int) }}{{ end }}
{{- $ports | uniq | toJson }}
{{- end }}
