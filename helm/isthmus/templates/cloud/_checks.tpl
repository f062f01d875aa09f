{{/* Refuses a cloud tier that the program or the operator would refuse later, or that could never run an engine. */}}

{{- define "isthmus.checks.cloud" -}}
{{- $ray := .Values.cloud.ray | default dict -}}
{{- $settings := include "isthmus.cloud.settings" . | fromYaml -}}
{{- include "isthmus.checks.models" (dict "root" . "settings" $settings) -}}
{{- include "isthmus.checks.keys" (dict "root" . "settings" $settings) -}}
{{- include "isthmus.checks.workers" (dict "root" . "settings" $settings) -}}
{{- include "isthmus.checks.operator" . -}}
{{- $store := .Values.cloud.modelStore | default dict -}}
{{- if and $store.cacheClaim ($store.cacheStorage).size -}}
  {{- fail "cloud.modelStore.cacheClaim and cloud.modelStore.cacheStorage.size exclude each other" -}}
{{- end -}}
{{- if and ($ray.faultTolerance).enabled (not (include "isthmus.redis.present" .)) -}}
  {{- fail "cloud.ray.faultTolerance.enabled needs a Redis: set redis.enabled or redis.external.host" -}}
{{- end -}}
{{- $stays := include "isthmus.count" (dict "value" $ray.oldClusterDeletionDelaySeconds "default" 60) | int -}}
{{- if gt (include "isthmus.ray.drainSeconds" . | int) $stays -}}
  {{- fail (printf "cloud.ray.oldClusterDeletionDelaySeconds (%d) is shorter than cloud.settings.life.drain_s (%v): an upgrade would cut streams that may still run" $stays $settings.life.drain_s) -}}
{{- end -}}
{{- end -}}

{{/* What the settings model of the program says of its values together; the schema knows each alone. */}}
{{- define "isthmus.checks.models" -}}
{{- $root := .root -}}
{{- $reserved := ($root.Files.Get "files/cloud-defaults.yaml" | fromYaml).engine_settings -}}
{{- $known := dict -}}
{{- if not .settings.models -}}{{- fail "cloud.settings.models needs at least one model" -}}{{- end -}}
{{- if and .settings.accelerator.type (ne .settings.accelerator.kind "gpu") -}}
  {{- fail "cloud.settings.accelerator.type is allowed only with kind gpu" -}}
{{- end -}}
{{- range .settings.models -}}
  {{- if not .model_id -}}{{- fail "cloud.settings.models has a model without a model_id" -}}{{- end -}}
  {{- if not .source -}}{{- fail (printf "model %s has no source" .model_id) -}}{{- end -}}
  {{- if hasKey $known .model_id -}}{{- fail (printf "cloud.settings.models has two models called %s" .model_id) -}}{{- end -}}
  {{- $_ := set $known .model_id true -}}
  {{- if and (hasPrefix "package:" .source) (not (($root.Values.cloud).modelStore).existingClaim) -}}
    {{- fail (printf "model %s comes from %s, which is prepared outside the cluster: set cloud.modelStore.existingClaim to the volume that holds it, or give a hub id" .model_id .source) -}}
  {{- end -}}
  {{- if gt (int .autoscaling.min_replicas) (int .autoscaling.max_replicas) -}}
    {{- fail (printf "model %s has autoscaling.min_replicas over max_replicas" .model_id) -}}
  {{- end -}}
  {{- if gt (float64 .autoscaling.target_ongoing_requests) (float64 .autoscaling.max_ongoing_requests) -}}
    {{- fail (printf "model %s has autoscaling.target_ongoing_requests over max_ongoing_requests, so load could never reach it" .model_id) -}}
  {{- end -}}
  {{- range $name, $_ := .engine_kwargs -}}
    {{- with get $reserved $name -}}{{- fail (printf "engine_kwargs.%s is set by %s" $name .) -}}{{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* Keys that the ingress asks for: different names, and one that the router has. */}}
{{- define "isthmus.checks.keys" -}}
{{- $known := dict -}}
{{- range .settings.keys | default list -}}
  {{- with . -}}
    {{- if not .name -}}{{- fail "cloud.settings.keys has a key without a name" -}}{{- end -}}
    {{- if not .sha256 -}}{{- fail (printf "key %s of cloud.settings.keys has no sha256" .name) -}}{{- end -}}
    {{- if hasKey $known .name -}}{{- fail (printf "cloud.settings.keys has two keys called %s" .name) -}}{{- end -}}
    {{- $_ := set $known .name true -}}
  {{- end -}}
{{- end -}}
{{- if and $known (.root.Values.router).enabled (not (.root.Values.cloud.apiKey).existingSecret) -}}
  {{- fail "cloud.settings.keys are set, so the router needs one of them: set cloud.apiKey.existingSecret to the Secret that holds it" -}}
{{- end -}}
{{- end -}}

{{/* Worker groups: one of the engines' kind, in which an engine fits, and bounds that hold together. */}}
{{- define "isthmus.checks.workers" -}}
{{- $ray := .root.Values.cloud.ray | default dict -}}
{{- $kind := .settings.accelerator.kind -}}
{{- $group := index ($ray.workers | default dict) $kind | default dict -}}
{{- if not $group.enabled -}}
  {{- fail (printf "cloud.settings.accelerator.kind is %s but cloud.ray.workers.%s.enabled is not true: no node could run an engine" $kind $kind) -}}
{{- end -}}
{{- $limits := ($group.resources).limits | default dict -}}
{{- if and (eq $kind "gpu") $limits (not (regexMatch "/" (keys $limits | join " "))) -}}
  {{- fail "cloud.ray.workers.gpu.resources.limits hold no GPU, such as nvidia.com/gpu: no engine would ever be placed" -}}
{{- end -}}
{{- $cpus := ((($group.resources).limits).cpu) | default ((($group.resources).requests).cpu) -}}
{{- range .settings.models -}}
  {{- if and $cpus (gt (mul .threads 1000 | int) (include "isthmus.millicpus" $cpus | int)) -}}
    {{- fail (printf "model %s wants %v threads but a worker of group %s has %v CPUs: no replica would ever be placed" .model_id .threads $kind $cpus) -}}
  {{- end -}}
{{- end -}}
{{- range $name, $worker := $ray.workers -}}
  {{- $worker = $worker | default dict -}}
  {{- $least := include "isthmus.count" (dict "value" $worker.minReplicas "default" 0) | int -}}
  {{- $most := include "isthmus.count" (dict "value" $worker.maxReplicas "default" (max 1 $least)) | int -}}
  {{- $wanted := include "isthmus.count" (dict "value" $worker.replicas "default" (max 1 $least)) | int -}}
  {{- if and $worker.enabled (gt $least $most) -}}
    {{- fail (printf "cloud.ray.workers.%s.minReplicas is over maxReplicas" $name) -}}
  {{- end -}}
  {{- if and $worker.enabled (not ($ray.autoscaling).enabled) (or (lt $wanted $least) (gt $wanted $most)) -}}
    {{- fail (printf "cloud.ray.workers.%s.replicas (%d) is not between minReplicas (%d) and maxReplicas (%d)" $name $wanted $least $most) -}}
  {{- end -}}
  {{- if and $worker.enabled (eq $name $kind) (lt $most 1) -}}
    {{- fail (printf "cloud.ray.workers.%s.maxReplicas is 0: no node could run an engine" $name) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* What the KubeRay operator refuses: fields that it sets itself, said a second time. */}}
{{- define "isthmus.checks.operator" -}}
{{- $ray := .Values.cloud.ray | default dict -}}
{{- $taken := dict -}}
{{- if ($ray.faultTolerance).enabled -}}
  {{- range list "REDIS_USERNAME" "REDIS_PASSWORD" "RAY_REDIS_ADDRESS" -}}{{- $_ := set $taken . "cloud.ray.faultTolerance" -}}{{- end -}}
{{- end -}}
{{- if ($ray.autoscaling).enabled -}}{{- $_ := set $taken "RAY_enable_autoscaler_v2" "cloud.ray.autoscaling" -}}{{- end -}}
{{- if eq (($ray.auth).mode | default "") "token" -}}
  {{- range list "RAY_AUTH_MODE" "RAY_AUTH_TOKEN" -}}{{- $_ := set $taken . "cloud.ray.auth" -}}{{- end -}}
{{- end -}}
{{- $pods := dict "cloud.ray" $ray "cloud.ray.head" ($ray.head | default dict) -}}
{{- range $name, $group := $ray.workers -}}
  {{- with $group -}}{{- if .enabled -}}{{- $_ := set $pods (printf "cloud.ray.workers.%s" $name) . -}}{{- end -}}{{- end -}}
{{- end -}}
{{- range $path, $pod := $pods -}}
  {{- range $variable := $pod.extraEnv -}}
    {{- with get $taken ($variable.name | default "") -}}
      {{- fail (printf "%s.extraEnv must not set %s: the operator does, for %s" $path $variable.name .) -}}
    {{- end -}}
  {{- end -}}
  {{- $restart := ($pod.podSpec).restartPolicy | default "Never" -}}
  {{- if and ($ray.autoscaling).enabled (ne $restart "Never") -}}
    {{- fail (printf "%s.podSpec.restartPolicy must be Never under cloud.ray.autoscaling: the autoscaler replaces pods" $path) -}}
  {{- end -}}
{{- end -}}
{{- range $name := list "ray.io/external-storage-namespace" "ray.io/ft-enabled" -}}
  {{- if hasKey ($ray.annotations | default dict) $name -}}
    {{- fail (printf "cloud.ray.annotations must not hold %s: use cloud.ray.faultTolerance, which gives each cluster a storage namespace of its own" $name) -}}
  {{- end -}}
{{- end -}}
{{- end -}}
