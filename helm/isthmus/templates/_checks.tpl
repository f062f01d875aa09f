{{/* Refuses values that Kubernetes or KubeRay would accept and that could then never work; one line says what to do. */}}

{{- define "isthmus.checks" -}}
{{- $name := include "isthmus.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
  {{- fail (printf "the name '%s' must begin with a letter and hold only a-z, 0-9 and '-' (services and RayService names are DNS-1035 labels): choose another release name or set fullnameOverride" $name) -}}
{{- end -}}
{{- if (.Values.router).enabled -}}{{- include "isthmus.checks.router" . -}}{{- end -}}
{{- if include "isthmus.cloud.onRay" . -}}{{- include "isthmus.checks.cloud" . -}}{{- end -}}
{{- include "isthmus.checks.redis" . -}}
{{- end -}}

{{- define "isthmus.checks.router" -}}
{{- $router := .Values.router -}}
{{- if not (or ($router.keys).existingSecret ($router.settings).keys) -}}
  {{- fail "router.keys.existingSecret is required: the router listens beyond loopback and does not start without keys; the chart's README shows how to make the Secret" -}}
{{- end -}}
{{- $many := or ($router.autoscaling).enabled (gt (include "isthmus.router.replicas" . | int) 1) -}}
{{- if and $many (not (include "isthmus.redis.present" .)) -}}
  {{- fail "more than one router needs shared fleet state: set redis.enabled or redis.external.host, or router.replicas to 1 with router.autoscaling off" -}}
{{- end -}}
{{- $scaling := $router.autoscaling | default dict -}}
{{- if and $scaling.enabled (gt ($scaling.minReplicas | default 2 | int) ($scaling.maxReplicas | default 6 | int)) -}}
  {{- fail "router.autoscaling.minReplicas is over router.autoscaling.maxReplicas" -}}
{{- end -}}
{{- $budget := $router.podDisruptionBudget | default dict -}}
{{- if and $budget.enabled (include "isthmus.given" $budget.minAvailable) (include "isthmus.given" $budget.maxUnavailable) -}}
  {{- fail "router.podDisruptionBudget takes minAvailable or maxUnavailable, not both" -}}
{{- end -}}
{{- if and ((.Values.cloud).external).url (not (.Values.cloud).enabled) -}}
  {{- fail "cloud.external.url is set but cloud.enabled is false" -}}
{{- end -}}
{{- end -}}

{{- define "isthmus.checks.cloud" -}}
{{- $root := . -}}
{{- $ray := .Values.cloud.ray | default dict -}}
{{- $settings := include "isthmus.cloud.settings" . | fromYaml -}}
{{- $kind := $settings.accelerator.kind -}}
{{- if not $settings.models -}}{{- fail "cloud.settings.models needs at least one model" -}}{{- end -}}
{{- $group := index ($ray.workers | default dict) $kind | default dict -}}
{{- if not $group.enabled -}}
  {{- fail (printf "cloud.settings.accelerator.kind is %s but cloud.ray.workers.%s.enabled is not true: no node could run an engine" $kind $kind) -}}
{{- end -}}
{{- $cpus := ((($group.resources).limits).cpu) | default ((($group.resources).requests).cpu) -}}
{{- range $settings.models -}}
  {{- if and (hasPrefix "package:" .source) (not (($root.Values.cloud).modelStore).existingClaim) -}}
    {{- fail (printf "model %s comes from %s, which is prepared outside the cluster: set cloud.modelStore.existingClaim to the volume that holds it, or give a hub id" .model_id .source) -}}
  {{- end -}}
  {{- if and $cpus (gt (mul .threads 1000 | int) (include "isthmus.millicpus" $cpus | int)) -}}
    {{- fail (printf "model %s wants %v threads but a worker of group %s has %v CPUs: no replica would ever be placed" .model_id .threads $kind $cpus) -}}
  {{- end -}}
{{- end -}}
{{- range $name, $worker := $ray.workers -}}
  {{- $worker = $worker | default dict -}}
  {{- $least := $worker.minReplicas | default 0 | int -}}
  {{- if and $worker.enabled (gt $least ($worker.maxReplicas | default (max 1 $least) | int)) -}}
    {{- fail (printf "cloud.ray.workers.%s.minReplicas is over maxReplicas" $name) -}}
  {{- end -}}
{{- end -}}
{{- if and ($ray.faultTolerance).enabled (not (include "isthmus.redis.present" .)) -}}
  {{- fail "cloud.ray.faultTolerance.enabled needs a Redis: set redis.enabled or redis.external.host" -}}
{{- end -}}
{{- end -}}

{{- define "isthmus.checks.redis" -}}
{{- $redis := .Values.redis | default dict -}}
{{- if and $redis.enabled ($redis.external).host -}}
  {{- fail "redis.enabled and redis.external.host exclude each other" -}}
{{- end -}}
{{- if and $redis.enabled (not ($redis.auth).existingSecret) -}}
  {{- fail "redis.auth.existingSecret is required with redis.enabled: the chart makes no passwords; the chart's README shows how to make the Secret" -}}
{{- end -}}
{{- end -}}
