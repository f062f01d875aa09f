{{/* Decides what all pods of the chart share: image reference, security contexts, scheduling, probes. */}}

{{/*
Image by digest where one is given, else by tag, else by the chart's appVersion: never by a moving name.
Call with (dict "root" $ "image" .Values.router.image "path" "router.image").
*/}}
{{- define "isthmus.image" -}}
{{- $image := .image | default dict -}}
{{- $repository := $image.repository | required (printf "%s.repository is required" .path) -}}
{{- with .root.Values.imageRegistry }}{{ $repository = printf "%s/%s" (trimSuffix "/" .) $repository }}{{ end -}}
{{- $tag := $image.tag | default .root.Chart.AppVersion | toString -}}
{{- if $image.digest -}}
  {{- printf "%s@%s" $repository $image.digest -}}
{{- else if eq $tag "latest" -}}
  {{- fail (printf "%s.tag must not be 'latest': a restart would change what runs" .path) -}}
{{- else -}}
  {{- printf "%s:%s" $repository $tag -}}
{{- end -}}
{{- end -}}

{{/* Seconds to a failure threshold: the budget divided by the period, rounded up. */}}
{{- define "isthmus.threshold" -}}
{{- $period := .periodSeconds | default 10 | int -}}
{{- $budget := .budgetSeconds | default $period | int -}}
{{- max 1 (div (add $budget (sub $period 1)) $period) -}}
{{- end -}}

{{/*
One HTTP probe from `periodSeconds`, `timeoutSeconds` and `budgetSeconds` (how long it may fail before the kubelet
acts). Call with (dict "probe" .Values.router.probes.liveness "path" "/healthz" "port" "http").
*/}}
{{- define "isthmus.httpProbe" -}}
httpGet:
  path: {{ .path | quote }}
  port: {{ .port }}
periodSeconds: {{ .probe.periodSeconds | default 10 | int }}
timeoutSeconds: {{ .probe.timeoutSeconds | default 2 | int }}
failureThreshold: {{ include "isthmus.threshold" .probe }}
{{- end -}}

{{/* Pod security that the `restricted` standard accepts. The caller's own block is merged over it. */}}
{{- define "isthmus.podSecurityContext" -}}
{{- $base := dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- include "isthmus.laidOver" (dict "base" $base "over" .context) -}}
{{- include "isthmus.yaml" $base -}}
{{- end -}}

{{- define "isthmus.securityContext" -}}
{{- $base := dict
    "allowPrivilegeEscalation" false
    "capabilities" (dict "drop" (list "ALL"))
    "runAsNonRoot" true
    "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- include "isthmus.laidOver" (dict "base" $base "over" .context) -}}
{{- include "isthmus.yaml" $base -}}
{{- end -}}

{{/*
`metadata` of a pod template: the operator's labels and annotations, and over them those that the chart needs. Call with
(dict "root" $ "component" c "values" <the component's values> "annotations" (dict …)).
*/}}
{{- define "isthmus.podMetadata" -}}
labels:
  {{- mergeOverwrite (deepCopy (.values.podLabels | default dict)) (include "isthmus.selectorLabels" . | fromYaml) | include "isthmus.yaml" | nindent 2 }}
{{- with mergeOverwrite (deepCopy (.values.podAnnotations | default dict)) (.annotations | default dict) }}
annotations:
  {{- include "isthmus.yaml" . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* A pod's spec as the chart says it, with the operator's own fields over it; lists are replaced, not merged. */}}
{{- define "isthmus.overlaid" -}}
{{- if .over -}}
  {{- $spec := .spec | fromYaml -}}
  {{- include "isthmus.laidOver" (dict "base" $spec "over" .over) -}}
  {{- include "isthmus.yaml" $spec -}}
{{- else -}}
  {{- .spec -}}
{{- end -}}
{{- end -}}

{{/* Where a pod may run. Call with the component's values. */}}
{{- define "isthmus.scheduling" -}}
{{- $blocks := dict -}}
{{- range $key := list "nodeSelector" "tolerations" "affinity" "priorityClassName" -}}
  {{- with index $ $key -}}{{- $_ := set $blocks $key . -}}{{- end -}}
{{- end -}}
{{- if $blocks -}}{{- include "isthmus.yaml" $blocks -}}{{- end -}}
{{- end -}}

{{- define "isthmus.pullSecrets" -}}
{{- with .Values.imagePullSecrets -}}
imagePullSecrets:
  {{- include "isthmus.joined" (dict "key" "name" "lists" (list .)) | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Name of the ServiceAccount. Call with (dict "account" .Values.router.serviceAccount "name" <default>). */}}
{{- define "isthmus.serviceAccountName" -}}
{{- $account := .account | default dict -}}
{{- if $account.create -}}
  {{- $account.name | default .name -}}
{{- else -}}
  {{- $account.name | default "default" -}}
{{- end -}}
{{- end -}}
