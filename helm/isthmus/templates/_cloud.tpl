{{/* Decides what the Ray cluster serves and how its pods look: one head that serves nothing, and worker groups. */}}

{{/* "true" where the chart runs a RayService: the tier is on and no external endpoint stands in for it. */}}
{{- define "isthmus.cloud.onRay" -}}
{{- $cloud := .Values.cloud | default dict -}}
{{- if and $cloud.enabled (not ($cloud.external).url) -}}true{{- end -}}
{{- end -}}

{{/*
Section `cloud` with every default filled in, as YAML. The defaults are generated from the settings model of the
program (files/cloud-defaults.yaml), so that chart and `isthmus cloud render` cannot drift apart.
*/}}
{{- define "isthmus.cloud.settings" -}}
{{- $defaults := .Files.Get "files/cloud-defaults.yaml" | fromYaml -}}
{{- $own := include "isthmus.pruned" ((.Values.cloud).settings | default dict) | fromYaml -}}
{{- $models := list -}}
{{- range $own.models | default list -}}
  {{- $models = append $models (mergeOverwrite (deepCopy $defaults.model) (include "isthmus.pruned" . | fromYaml)) -}}
{{- end -}}
{{- $section := mergeOverwrite (deepCopy (omit $defaults "model")) (omit $own "models") -}}
{{- toYaml (set $section "models" $models) -}}
{{- end -}}

{{/* Where `package:NAME` sources lie on every node. */}}
{{- define "isthmus.cloud.checkpoints" -}}
{{- ((.Values.cloud).modelStore).mountPath | default "/models" | trimSuffix "/" -}}
{{- end -}}

{{/* The Serve config: what `isthmus cloud render` prints for the same settings. */}}
{{- define "isthmus.cloud.serveConfig" -}}
{{- $settings := include "isthmus.cloud.settings" . | fromYaml -}}
{{- $checkpoints := include "isthmus.cloud.checkpoints" . -}}
{{- $models := list -}}
{{- $facts := list -}}
{{- range $settings.models -}}
  {{- $model := . -}}
  {{- if hasPrefix "package:" $model.source -}}
    {{- $_ := set $model "source" (printf "%s/%s" $checkpoints (trimPrefix "package:" $model.source)) -}}
  {{- end -}}
  {{- $models = append $models $model -}}
  {{- $facts = append $facts (pick $model "model_id" "digest" "context_tokens" "max_num_seqs") -}}
{{- end -}}
{{- $app := dict
    "models" $models
    "accelerator" $settings.accelerator
    "ingress" $settings.ingress
    "life" $settings.life -}}
{{- $http := dict
    "host" "0.0.0.0"
    "port" $settings.port
    "keep_alive_timeout_s" 75
    "request_timeout_s" 86400 -}}
{{- toYaml (dict
    "proxy_location" "EveryNode"
    "http_options" $http
    "logging_config" (dict "encoding" "JSON" "log_level" (upper $settings.log_level) "enable_access_log" false)
    "applications" (list
      (dict "name" "isthmus-ops" "route_prefix" "/ops" "import_path" "cloud.capacity:build" "args" (dict "models" $facts))
      (dict "name" "isthmus" "route_prefix" "/" "import_path" "cloud.app:build" "args" $app))) -}}
{{- end -}}

{{- define "isthmus.cloud.port" -}}
{{- (include "isthmus.cloud.settings" . | fromYaml).port | int -}}
{{- end -}}

{{- define "isthmus.cloud.accelerator" -}}
{{- (include "isthmus.cloud.settings" . | fromYaml).accelerator.kind -}}
{{- end -}}

{{/* The CPU and GPU builds of vLLM are different images of one release: `<appVersion>-cpu`, `<appVersion>-gpu`. */}}
{{- define "isthmus.cloud.image" -}}
{{- $image := deepCopy ((.Values.cloud).image | default dict) -}}
{{- if not $image.tag -}}
  {{- $_ := set $image "tag" (printf "%s-%s" .Chart.AppVersion (include "isthmus.cloud.accelerator" .)) -}}
{{- end -}}
{{- include "isthmus.image" (dict "root" . "image" $image "path" "cloud.image") -}}
{{- end -}}

{{/* CPUs of a Kubernetes quantity, rounded down to whole thousandths: "2" and "2000m" are the same. */}}
{{- define "isthmus.millicpus" -}}
{{- $text := toString . -}}
{{- if hasSuffix "m" $text -}}{{- trimSuffix "m" $text | int -}}{{- else -}}{{- mulf (float64 $text) 1000 | int -}}{{- end -}}
{{- end -}}

{{/*
Pod template of the head (`role` head) or of a worker group. Only selector labels: any change inside the cluster spec
makes KubeRay bring up a second cluster beside the first, and a new chart version alone must not cost that.
Call with (dict "root" $ "role" "head" "group" .Values.cloud.ray.head).
*/}}
{{- define "isthmus.ray.podTemplate" -}}
{{- $root := .root -}}
{{- $group := .group -}}
{{- $ray := ($root.Values.cloud).ray | default dict -}}
{{- $cloud := $root.Values.cloud -}}
metadata:
  labels:
    {{- include "isthmus.selectorLabels" (dict "root" $root "component" (printf "ray-%s" .role)) | nindent 4 }}
  {{- with $group.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "isthmus.ray.serviceAccountName" $root }}
  # Only the autoscaler, beside the head, speaks to the Kubernetes API.
  automountServiceAccountToken: {{ and (eq .role "head") (($ray.autoscaling).enabled | default false) }}
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "isthmus.ray.graceSeconds" . }}
  {{- with include "isthmus.pullSecrets" $root }}
  {{- . | nindent 2 }}
  {{- end }}
  securityContext:
    {{- include "isthmus.podSecurityContext" (dict "context" $ray.podSecurityContext) | nindent 4 }}
  containers:
    - name: ray-{{ .role }}
      image: {{ include "isthmus.cloud.image" $root }}
      imagePullPolicy: {{ ($cloud.image).pullPolicy | default "IfNotPresent" }}
      ports:
        {{- include "isthmus.ray.ports" . | nindent 8 }}
      env:
        {{- include "isthmus.ray.environment" . | nindent 8 }}
      # Loading a model happens in a Serve replica, not at container start, so the operator's liveness probe (raylet
      # health) never sees it. This budget is for the container: starting Ray on a cold node and joining the head.
      {{- with ($ray.probes).startup }}
      startupProbe:
        {{- include "isthmus.httpProbe" (dict "probe" . "path" "/api/healthz" "port" 52365) | nindent 8 }}
      {{- end }}
      {{- if eq .role "worker" }}
      lifecycle:
        preStop:
          # The pod has already left the serve service; running answers get this long to end.
          exec:
            command: ["sleep", {{ include "isthmus.ray.drainSeconds" $root | quote }}]
      {{- end }}
      {{- with $group.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- include "isthmus.securityContext" (dict "context" $ray.securityContext) | nindent 8 }}
      volumeMounts:
        {{- include "isthmus.ray.volumeMounts" $root | nindent 8 }}
  volumes:
    {{- include "isthmus.ray.volumes" $root | nindent 4 }}
  {{- with include "isthmus.scheduling" $group }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $group.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* KubeRay builds the serve service from the head's port named `serve`, even when only workers are behind it. */}}
{{- define "isthmus.ray.ports" -}}
{{- if eq .role "head" -}}
- name: gcs-server
  containerPort: 6379
  protocol: TCP
- name: dashboard
  containerPort: 8265
  protocol: TCP
- name: client
  containerPort: 10001
  protocol: TCP
{{ end -}}
- name: metrics
  containerPort: 8080
  protocol: TCP
- name: serve
  containerPort: {{ include "isthmus.cloud.port" .root }}
  protocol: TCP
{{- end -}}

{{- define "isthmus.ray.environment" -}}
{{- $ray := (.root.Values.cloud).ray | default dict -}}
- name: HF_HOME
  value: /cache/huggingface
- name: VLLM_CACHE_ROOT
  value: /cache/vllm
- name: RAY_USAGE_STATS_ENABLED
  value: "0"
- name: RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S
  value: "1"
- name: RAY_metrics_report_interval_ms
  value: "1000"
{{- $token := (.root.Values.cloud).hubToken | default dict -}}
{{- if and (eq .role "worker") $token.existingSecret }}
- name: HF_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ $token.existingSecret }}
      key: {{ $token.key | default "token" }}
{{- end }}
{{- with $ray.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "isthmus.ray.volumeMounts" -}}
- name: cache
  mountPath: /cache
{{- with (.Values.cloud).modelStore }}
{{- if .existingClaim }}
- name: models
  mountPath: {{ include "isthmus.cloud.checkpoints" $ }}
  readOnly: true
  {{- with .subPath }}
  subPath: {{ . }}
  {{- end }}
{{- end }}
{{- end }}
{{- with ((.Values.cloud).ray).extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "isthmus.ray.volumes" -}}
- name: cache
  {{- with ((.Values.cloud).modelStore).cacheClaim }}
  persistentVolumeClaim:
    claimName: {{ . }}
  {{- else }}
  emptyDir:
    {{- with ((.Values.cloud).modelStore).cacheSizeLimit }}
    sizeLimit: {{ . }}
    {{- else }} {}
    {{- end }}
  {{- end }}
{{- with ((.Values.cloud).modelStore).existingClaim }}
- name: models
  persistentVolumeClaim:
    claimName: {{ . }}
    readOnly: true
{{- end }}
{{- with ((.Values.cloud).ray).extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "isthmus.ray.serviceAccountName" -}}
{{- include "isthmus.serviceAccountName" (dict "account" ((.Values.cloud).ray).serviceAccount "name" (include "isthmus.cloud.name" .)) -}}
{{- end -}}

{{/* Time for running answers, the same that Serve gives to a replica it replaces. */}}
{{- define "isthmus.ray.drainSeconds" -}}
{{- (include "isthmus.cloud.settings" . | fromYaml).life.drain_s | float64 | ceil | int -}}
{{- end -}}

{{- define "isthmus.ray.graceSeconds" -}}
{{- if eq .role "head" -}}30{{- else -}}{{- add 30 (include "isthmus.ray.drainSeconds" .root) -}}{{- end -}}
{{- end -}}

{{/* One worker group. Under autoscaling the autoscaler owns `replicas`, so it is left out. */}}
{{- define "isthmus.ray.workerGroup" -}}
{{- $ray := (.root.Values.cloud).ray | default dict -}}
{{- $replicas := .group.minReplicas | default 0 -}}
groupName: {{ .name }}
{{- if not ($ray.autoscaling).enabled }}
replicas: {{ .group.replicas | default (max 1 $replicas) }}
{{- end }}
minReplicas: {{ $replicas }}
maxReplicas: {{ .group.maxReplicas | default (max 1 $replicas) }}
rayStartParams:
  metrics-export-port: "8080"
template:
  {{- include "isthmus.ray.podTemplate" (dict "root" .root "role" "worker" "group" .group) | nindent 2 }}
{{- end -}}
