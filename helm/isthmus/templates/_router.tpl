{{/* Decides the router's settings file: what the chart knows (listen address, cloud, Redis, keys), then the operator's. */}}

{{/* Not below /etc/isthmus: nothing can be mounted inside a read-only ConfigMap volume. */}}
{{- define "isthmus.router.secrets" -}}/run/isthmus/secrets{{- end -}}

{{- define "isthmus.router.port" -}}
{{- ((.Values.router).settings).port | default 8080 | int -}}
{{- end -}}

{{/* The cloud backend: our RayService's serve service, an external endpoint, or none. */}}
{{- define "isthmus.router.cloud" -}}
{{- $external := (.Values.cloud).external | default dict -}}
{{- if include "isthmus.cloud.onRay" . -}}
id: cloud
url: http://{{ include "isthmus.cloud.serveService" . }}:{{ include "isthmus.cloud.port" . }}
{{- with include "isthmus.router.cloudKey" . | fromYaml }}
api_key_file: {{ include "isthmus.router.secrets" $ }}/cloud/{{ .key }}
{{- end }}
{{- else if and (.Values.cloud).enabled $external.url -}}
id: cloud
url: {{ $external.url | trimSuffix "/" | trimSuffix "/v1" | quote }}
{{- with $external.models }}
models:
  {{- include "isthmus.yaml" . | nindent 2 }}
{{- end }}
{{- with include "isthmus.router.cloudKey" . | fromYaml }}
api_key_file: {{ include "isthmus.router.secrets" $ }}/cloud/{{ .key }}
{{- end }}
{{- with $external.rateDomain }}
rate_domain: {{ . | quote }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* Secret and key that the router presents to the chart's cloud; nothing where it is asked without one. */}}
{{- define "isthmus.router.cloudKey" -}}
{{- $cloud := .Values.cloud | default dict -}}
{{- $given := ternary $cloud.apiKey $cloud.external (not (empty (include "isthmus.cloud.onRay" .))) | default dict -}}
{{- if and $cloud.enabled $given.existingSecret -}}
secret: {{ $given.existingSecret | quote }}
key: {{ $given.key | default "api-key" | quote }}
{{- end -}}
{{- end -}}

{{- define "isthmus.router.state" -}}
{{- if include "isthmus.redis.present" . -}}
{{- $user := include "isthmus.redis.routerUsername" . -}}
kind: redis
{{- $ca := ternary "" (printf "?ssl_ca_certs=%s/redis-ca/ca.crt" (include "isthmus.router.secrets" .)) (empty (include "isthmus.redis.ca" .)) }}
url: {{ printf "%s://%s%s:%s%s" (include "isthmus.redis.scheme" .) (ternary "" (printf "%s@" $user) (empty $user)) (include "isthmus.redis.host" .) (include "isthmus.redis.port" .) $ca | quote }}
{{- if include "isthmus.redis.secret" . }}
password_file: {{ include "isthmus.router.secrets" . }}/redis/{{ ((.Values.redis).auth).routerPasswordKey | default "router-password" }}
{{- end }}
{{- else -}}
kind: memory
{{- end -}}
{{- end -}}

{{/* The settings file. The chart's own cloud comes first in `clouds`; the operator's follow. */}}
{{- define "isthmus.router.config" -}}
{{- $router := .Values.router | default dict -}}
{{- $own := include "isthmus.yaml" ($router.settings | default dict) | fromYaml -}}
{{- $clouds := list -}}
{{- with include "isthmus.router.cloud" . | fromYaml -}}{{- $clouds = append $clouds . -}}{{- end -}}
{{- $clouds = concat $clouds ($own.clouds | default list) -}}
{{- $known := dict
    "host" "0.0.0.0"
    "port" (include "isthmus.router.port" . | int)
    "drain_limit_s" 30
    "state" (include "isthmus.router.state" . | fromYaml) -}}
{{- if ($router.auditKey).existingSecret -}}
  {{- $_ := set $known "audit" (dict "key_file" (printf "%s/audit/%s" (include "isthmus.router.secrets" .) ($router.auditKey.key | default "audit.key"))) -}}
{{- end -}}
{{- if ($router.edgeKey).existingSecret -}}
  {{- $_ := set $known "edge_api_key_file" (printf "%s/edge/%s" (include "isthmus.router.secrets" .) ($router.edgeKey.key | default "api-key")) -}}
{{- end -}}
{{- $section := mergeOverwrite $known (omit $own "clouds") -}}
{{- if $clouds -}}{{- $_ := set $section "clouds" $clouds -}}{{- end -}}
{{- toYaml (dict "router" $section) -}}
{{- end -}}

{{/* Secrets that are mounted as files: name of the folder to (dict secret key). */}}
{{- define "isthmus.router.secretVolumes" -}}
{{- $router := .Values.router | default dict -}}
{{- $volumes := dict -}}
{{- with include "isthmus.router.cloudKey" . | fromYaml -}}
  {{- $_ := set $volumes "cloud" . -}}
{{- end -}}
{{- if and (include "isthmus.redis.present" .) (include "isthmus.redis.secret" .) -}}
  {{- $_ := set $volumes "redis" (dict "secret" (include "isthmus.redis.secret" .) "key" (((.Values.redis).auth).routerPasswordKey | default "router-password")) -}}
{{- end -}}
{{- with include "isthmus.redis.ca" . | fromYaml -}}
  {{- $_ := set $volumes "redis-ca" (dict "secret" .secret "key" "ca.crt") -}}
{{- end -}}
{{- if ($router.auditKey).existingSecret -}}
  {{- $_ := set $volumes "audit" (dict "secret" $router.auditKey.existingSecret "key" ($router.auditKey.key | default "audit.key")) -}}
{{- end -}}
{{- if ($router.edgeKey).existingSecret -}}
  {{- $_ := set $volumes "edge" (dict "secret" $router.edgeKey.existingSecret "key" ($router.edgeKey.key | default "api-key")) -}}
{{- end -}}
{{- toYaml $volumes -}}
{{- end -}}

{{/* Secret and key with the list of keys: the operator's, or the one that the Job adds the join token to. */}}
{{- define "isthmus.router.keys" -}}
{{- $router := .Values.router | default dict -}}
{{- if ($router.joinToken).enabled -}}
name: {{ include "isthmus.join.secret" . | quote }}
key: keys.json
{{- else if ($router.keys).existingSecret -}}
name: {{ $router.keys.existingSecret | quote }}
key: {{ $router.keys.key | default "keys.json" | quote }}
{{- end -}}
{{- end -}}

{{- define "isthmus.join.secret" -}}
{{- ((.Values.router).joinToken).secretName | default (include "isthmus.join.name" .) -}}
{{- end -}}

{{- define "isthmus.router.serviceAccountName" -}}
{{- include "isthmus.serviceAccountName" (dict "account" (.Values.router).serviceAccount "name" (include "isthmus.router.name" .)) -}}
{{- end -}}

{{/* Leave the endpoints, drain, write the last audit records. */}}
{{- define "isthmus.router.graceSeconds" -}}
{{- $drain := (include "isthmus.router.config" . | fromYaml).router.drain_limit_s | float64 | ceil | int -}}
{{- add $drain ((.Values.router).preStopSeconds | default 0) 10 -}}
{{- end -}}

{{- define "isthmus.router.replicas" -}}
{{- $replicas := (.Values.router).replicas -}}
{{- if include "isthmus.given" $replicas -}}{{- int $replicas -}}{{- else -}}1{{- end -}}
{{- end -}}
