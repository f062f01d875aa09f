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
{{- if and $scaling.enabled (eq ($scaling.engine | default "hpa") "keda") ($scaling.keda).prometheusUrl (le ($scaling.keda.inFlightPerPod | default 64 | int) 0) -}}
  {{- fail "router.autoscaling.keda.inFlightPerPod must be 1 or more" -}}
{{- end -}}
{{- if and ($router.ingress).enabled (not $router.ingress.hosts) -}}
  {{- fail "router.ingress.hosts needs at least one host name: without one the Ingress would take every request of the cluster" -}}
{{- end -}}
{{- if and ($router.httpRoute).enabled (not $router.httpRoute.parentRefs) -}}
  {{- fail "router.httpRoute.parentRefs needs at least one gateway" -}}
{{- end -}}
{{- range $kind := list "ingress" "httpRoute" -}}
  {{- $way := index $router $kind | default dict -}}
  {{- if and $way.enabled (not $way.paths) -}}{{- fail (printf "router.%s.paths needs at least one path" $kind) -}}{{- end -}}
{{- end -}}
{{- if and ((.Values.monitoring).serviceMonitor).enabled (not ((.Values.monitoring.serviceMonitor).key).existingSecret) -}}
  {{- fail "monitoring.serviceMonitor.key.existingSecret is required: /metrics asks for a key; one without any scope will do" -}}
{{- end -}}
{{- if and ($router.joinToken).enabled ($router.keys).existingSecret (eq $router.keys.existingSecret (include "isthmus.join.secret" .)) -}}
  {{- fail "router.joinToken.secretName must not be router.keys.existingSecret: the Job would write over your keys" -}}
{{- end -}}
{{- $ids := dict -}}
{{- $section := (include "isthmus.router.config" . | fromYaml).router -}}
{{- range concat ($section.clouds | default list) ($section.edges | default list) -}}
  {{- if hasKey $ids .id -}}
    {{- fail (printf "router.settings has two backends with the id %s (the chart's own cloud is called cloud)" .id) -}}
  {{- end -}}
  {{- $_ := set $ids .id true -}}
{{- end -}}
{{- if and ((.Values.cloud).external).url (not (.Values.cloud).enabled) -}}
  {{- fail "cloud.external.url is set but cloud.enabled is false" -}}
{{- end -}}
{{- end -}}

{{- define "isthmus.checks.redis" -}}
{{- $redis := .Values.redis | default dict -}}
{{- if and $redis.enabled ($redis.external).host -}}
  {{- fail "redis.enabled and redis.external.host exclude each other" -}}
{{- end -}}
{{- $auth := $redis.auth | default dict -}}
{{- if and $redis.enabled (not (or $auth.existingSecret $auth.create)) -}}
  {{- fail "redis.auth.existingSecret is required with redis.enabled: the chart's README shows how to make the Secret; or set redis.auth.create" -}}
{{- end -}}
{{- if and $auth.create $auth.existingSecret -}}
  {{- fail "redis.auth.create and redis.auth.existingSecret exclude each other" -}}
{{- end -}}
{{- if and $auth.create (not $redis.enabled) -}}
  {{- fail "redis.auth.create needs redis.enabled: an external Redis has its passwords already" -}}
{{- end -}}
{{- if and $redis.enabled ($redis.tls).enabled (not $redis.tls.existingSecret) -}}
  {{- fail "redis.tls.existingSecret is required with redis.tls.enabled: a Secret with tls.crt, tls.key and ca.crt" -}}
{{- end -}}
{{- end -}}
