{{/* Decides what the Ray cluster serves: the Serve config that the program itself would print. */}}

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
  {{- with . -}}
    {{- $model := mergeOverwrite (deepCopy $defaults.model) (include "isthmus.pruned" . | fromYaml) -}}
    {{- if hasKey $model "adapters" -}}
      {{- $_ := set $model "adapters" (mergeOverwrite (deepCopy $defaults.adapters) $model.adapters) -}}
    {{- end -}}
    {{- $models = append $models $model -}}
  {{- end -}}
{{- end -}}
{{- $section := mergeOverwrite (deepCopy (omit $defaults "model" "adapters" "engine_settings")) (omit $own "models") -}}
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
  {{- if hasPrefix "package:" ($model.source | default "") -}}
    {{- $_ := set $model "source" (printf "%s/%s" $checkpoints (trimPrefix "package:" $model.source)) -}}
  {{- end -}}
  {{- if and $model.adapters (not $model.adapters.folder) -}}
    {{- $_ := set $model.adapters "folder" (printf "%s/adapters" $checkpoints) -}}
  {{- end -}}
  {{- $models = append $models $model -}}
  {{- $facts = append $facts (pick $model
      "model_id" "digest" "tokenizer" "context_tokens" "max_num_seqs" "tool_call_parser" "adapters") -}}
{{- end -}}
{{- $keys := list -}}
{{- range $settings.keys | default list -}}
  {{- with . -}}
    {{- $key := deepCopy (include "isthmus.pruned" . | fromYaml) -}}
    {{- /* No scope is not the same as none said. */ -}}
    {{- $scopes := ternary $key.scopes (list "inference") (kindIs "slice" $key.scopes) -}}
    {{- $keys = append $keys (set $key "scopes" ($scopes | uniq | sortAlpha)) -}}
  {{- end -}}
{{- end -}}
{{- $app := dict
    "models" $models
    "accelerator" $settings.accelerator
    "ingress" $settings.ingress
    "life" $settings.life
    "keys" $keys
    "tracing" $settings.tracing -}}
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
