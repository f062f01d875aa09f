{{/* Decides how Ray's pods look: one head that serves nothing, and worker groups. */}}

{{/*
Pod template of the head (`role` head) or of a worker group. Only selector labels: any change inside the cluster spec
makes KubeRay bring up a second cluster beside the first, and a new chart version alone must not cost that.
Call with (dict "root" $ "role" "head" "group" .Values.cloud.ray.head).
*/}}
{{- define "isthmus.ray.podTemplate" -}}
{{- $root := .root -}}
{{- $group := .group -}}
metadata:
  {{- include "isthmus.podMetadata" (dict "root" $root "component" (printf "ray-%s" .role) "values" $group) | nindent 2 }}
spec:
  {{- include "isthmus.overlaid" (dict "spec" (include "isthmus.ray.podSpec" .) "over" $group.podSpec) | nindent 2 }}
{{- end -}}

{{- define "isthmus.ray.podSpec" -}}
{{- $root := .root -}}
{{- $group := .group -}}
{{- $ray := ($root.Values.cloud).ray | default dict -}}
{{- $cloud := $root.Values.cloud -}}
serviceAccountName: {{ include "isthmus.ray.serviceAccountName" $root | quote }}
# Only the autoscaler, beside the head, speaks to the Kubernetes API.
automountServiceAccountToken: {{ and (eq .role "head") (($ray.autoscaling).enabled | default false) }}
enableServiceLinks: false
terminationGracePeriodSeconds: {{ include "isthmus.ray.graceSeconds" . }}
{{- with include "isthmus.pullSecrets" $root }}
{{ . }}
{{- end }}
securityContext:
  {{- include "isthmus.podSecurityContext" (dict "context" $ray.podSecurityContext) | nindent 2 }}
{{- with $group.initContainers }}
initContainers:
  {{- include "isthmus.yaml" . | nindent 2 }}
{{- end }}
containers:
  - name: ray-{{ .role }}
    image: {{ include "isthmus.cloud.image" $root | quote }}
    imagePullPolicy: {{ ($cloud.image).pullPolicy | default "IfNotPresent" | quote }}
    ports:
      {{- include "isthmus.ray.ports" . | nindent 6 }}
    env:
      {{- $env := include "isthmus.ray.environment" . | fromYamlArray }}
      {{- include "isthmus.joined" (dict "key" "name" "lists" (list $env $ray.extraEnv $group.extraEnv)) | nindent 6 }}
    # Loading a model happens in a Serve replica, not at container start, so the operator's liveness probe (raylet
    # health) never sees it. This budget is for the container: starting Ray on a cold node and joining the head.
    {{- with ($ray.probes).startup }}
    startupProbe:
      {{- include "isthmus.httpProbe" (dict "probe" . "path" "/api/healthz" "port" 52365) | nindent 6 }}
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
      {{- include "isthmus.yaml" . | nindent 6 }}
    {{- end }}
    securityContext:
      {{- include "isthmus.securityContext" (dict "context" $ray.securityContext) | nindent 6 }}
    volumeMounts:
      {{- $mounts := include "isthmus.ray.volumeMounts" . | fromYamlArray }}
      {{- include "isthmus.joined" (dict "key" "mountPath" "lists" (list $mounts $ray.extraVolumeMounts $group.extraVolumeMounts)) | nindent 6 }}
  {{- with $group.extraContainers }}
  {{- include "isthmus.yaml" . | nindent 2 }}
  {{- end }}
volumes:
  {{- $volumes := include "isthmus.ray.volumes" . | fromYamlArray }}
  {{- include "isthmus.joined" (dict "key" "name" "lists" (list $volumes $ray.extraVolumes $group.extraVolumes)) | nindent 2 }}
{{- with include "isthmus.scheduling" $group }}
{{ . }}
{{- end }}
{{- with $group.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- include "isthmus.yaml" . | nindent 2 }}
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
{{- if eq (include "isthmus.cloud.settings" .root | fromYaml).ingress.proxy "haproxy" }}
# Every node's proxy is HAProxy, which passes connections on to the ingress replicas' own servers.
- name: RAY_SERVE_ENABLE_HA_PROXY
  value: "1"
{{- end }}
{{- $token := (.root.Values.cloud).hubToken | default dict -}}
{{- if and (eq .role "worker") $token.existingSecret }}
- name: HF_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ $token.existingSecret | quote }}
      key: {{ $token.key | default "token" | quote }}
{{- end }}
{{- if include "isthmus.ray.redisCa" . }}
- name: RAY_REDIS_CA_CERT
  value: {{ include "isthmus.ray.redisCa" . }}/ca.crt
{{- else if and (eq .role "head") ($ray.faultTolerance).enabled (eq (include "isthmus.redis.scheme" .root) "rediss") }}
# Ray verifies the certificate but knows no authorities by itself: those of the image.
- name: RAY_REDIS_CA_CERT
  value: /etc/ssl/certs/ca-certificates.crt
{{- end }}
{{- end -}}

{{- define "isthmus.ray.volumeMounts" -}}
- name: cache
  mountPath: /cache
{{- with (.root.Values.cloud).modelStore }}
{{- if .existingClaim }}
- name: models
  mountPath: {{ include "isthmus.cloud.checkpoints" $.root | quote }}
  readOnly: true
  {{- with .subPath }}
  subPath: {{ . | quote }}
  {{- end }}
{{- end }}
{{- end }}
{{- if include "isthmus.ray.redisCa" . }}
- name: redis-ca
  mountPath: {{ include "isthmus.ray.redisCa" . | quote }}
  readOnly: true
{{- end }}
{{- end -}}

{{- define "isthmus.ray.volumes" -}}
- name: cache
  {{- with include "isthmus.cloud.cacheClaim" .root }}
  persistentVolumeClaim:
    claimName: {{ . | quote }}
  {{- else }}
  emptyDir:
    {{- with ((.root.Values.cloud).modelStore).cacheSizeLimit }}
    sizeLimit: {{ . | quote }}
    {{- else }} {}
    {{- end }}
  {{- end }}
{{- with ((.root.Values.cloud).modelStore).existingClaim }}
- name: models
  persistentVolumeClaim:
    claimName: {{ . | quote }}
    readOnly: true
{{- end }}
{{- if include "isthmus.ray.redisCa" . }}
{{- $ca := include "isthmus.redis.ca" .root | fromYaml }}
- name: redis-ca
  secret:
    secretName: {{ $ca.secret | quote }}
    items:
      - key: ca.crt
        path: ca.crt
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
{{- $least := include "isthmus.count" (dict "value" .group.minReplicas "default" 0) -}}
groupName: {{ .name | quote }}
{{- if not ($ray.autoscaling).enabled }}
replicas: {{ include "isthmus.count" (dict "value" .group.replicas "default" (max 1 (int $least))) }}
{{- end }}
minReplicas: {{ $least }}
maxReplicas: {{ include "isthmus.count" (dict "value" .group.maxReplicas "default" (max 1 (int $least))) }}
rayStartParams:
  metrics-export-port: "8080"
template:
  {{- include "isthmus.ray.podTemplate" (dict "root" .root "role" "worker" "group" .group) | nindent 2 }}
{{- end -}}

{{/* Where the authority of Redis' certificate lies; only the head's tables are in Redis. Empty: nothing to mount. */}}
{{- define "isthmus.ray.redisCa" -}}
{{- $ray := (.root.Values.cloud).ray | default dict -}}
{{- if and (eq .role "head") ($ray.faultTolerance).enabled (include "isthmus.redis.ca" .root | fromYaml) -}}/run/isthmus/redis-ca{{- end -}}
{{- end -}}

{{/* The claim that holds downloads and compiled graphs: one that exists, the chart's own, or none. */}}
{{- define "isthmus.cloud.cacheClaim" -}}
{{- $store := (.Values.cloud).modelStore | default dict -}}
{{- if $store.cacheClaim -}}
  {{- $store.cacheClaim -}}
{{- else if ($store.cacheStorage).size -}}
  {{- include "isthmus.cloud.name" . }}-cache
{{- end -}}
{{- end -}}
