{{/* Decides where the shared state lives and who may touch it: our own Redis, an external one, or none. */}}

{{/* "true" where some Redis is configured. */}}
{{- define "isthmus.redis.present" -}}
{{- $redis := .Values.redis | default dict -}}
{{- if or $redis.enabled ($redis.external).host -}}true{{- end -}}
{{- end -}}

{{- define "isthmus.redis.host" -}}
{{- $redis := .Values.redis | default dict -}}
{{- if $redis.enabled -}}
  {{- include "isthmus.redis.name" . -}}
{{- else -}}
  {{- $host := ($redis.external).host | default "" -}}
  {{- ternary (printf "[%s]" $host) $host (and (contains ":" $host) (not (hasPrefix "[" $host))) -}}
{{- end -}}
{{- end -}}

{{- define "isthmus.redis.port" -}}
{{- $redis := .Values.redis | default dict -}}
{{- if $redis.enabled -}}6379{{- else -}}{{- ($redis.external).port | default 6379 | int -}}{{- end -}}
{{- end -}}

{{/* `redis` or `rediss`: as told, for our own server and for an external one. */}}
{{- define "isthmus.redis.scheme" -}}
{{- $redis := .Values.redis | default dict -}}
{{- if ternary ($redis.tls).enabled ($redis.external).tls ($redis.enabled | default false) -}}rediss{{- else -}}redis{{- end -}}
{{- end -}}

{{/* Secret with the passwords: the operator's, or the one that the chart makes once. */}}
{{- define "isthmus.redis.secret" -}}
{{- $auth := (.Values.redis).auth | default dict -}}
{{- if $auth.create -}}{{- include "isthmus.redis.name" . }}-users{{- else -}}{{- $auth.existingSecret | default "" -}}{{- end -}}
{{- end -}}

{{/* Secret whose ca.crt signed the server's certificate, as (dict "secret" name); empty without TLS or a private CA. */}}
{{- define "isthmus.redis.ca" -}}
{{- $redis := .Values.redis | default dict -}}
{{- if $redis.enabled -}}
  {{- if ($redis.tls).enabled -}}secret: {{ $redis.tls.existingSecret | quote }}{{- end -}}
{{- else if and ($redis.external).host $redis.external.tls $redis.external.caSecret -}}
  secret: {{ $redis.external.caSecret | quote }}
{{- end -}}
{{- end -}}

{{/*
Server configuration without a secret in it. `noeviction`: losing a lease or a GCS table silently is worse than an
error. Appended to by the start command with one `user` line for each password, as hashes.
*/}}
{{- define "isthmus.redis.conf" -}}
bind * -::*
{{- if ((.Values.redis).tls).enabled }}
port 0
tls-port 6379
tls-cert-file /etc/redis-tls/tls.crt
tls-key-file /etc/redis-tls/tls.key
tls-ca-cert-file /etc/redis-tls/ca.crt
tls-auth-clients no
{{- else }}
port 6379
{{- end }}
protected-mode no
dir /data
appendonly yes
appendfsync everysec
maxmemory-policy noeviction
{{- with (.Values.redis).maxMemory }}
maxmemory {{ . }}
{{- end }}
user default off
{{- end -}}

{{/*
Starts the server as process 1, with the passwords hashed into ACL lines on its standard input: they appear neither
in a file nor in the arguments. The router's user sees its own keys alone; Ray's sees all but administration.
*/}}
{{- define "isthmus.redis.command" -}}
hashed() { printf %s "$1" | sha256sum | cut -c1-64; }
exec redis-server - <<END
$(cat "${REDIS_CONF:-/etc/redis/redis.conf}")
user {{ ((.Values.redis).auth).routerUsername | default "router" }} on #$(hashed "$ROUTER_PASSWORD") ~isthmus:* &isthmus:* +@all -@admin -@dangerous +info
{{- if (((.Values.cloud).ray).faultTolerance).enabled }}
user {{ ((.Values.redis).auth).rayUsername | default "ray" }} on #$(hashed "$RAY_PASSWORD") ~* resetchannels +@all -@admin -@dangerous +info +keys
{{- end }}
END
{{- end -}}

{{- define "isthmus.redis.passwords" -}}
- name: ROUTER_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ include "isthmus.redis.secret" . | quote }}
      key: {{ ((.Values.redis).auth).routerPasswordKey | default "router-password" | quote }}
{{- if (((.Values.cloud).ray).faultTolerance).enabled }}
- name: RAY_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ include "isthmus.redis.secret" . | quote }}
      key: {{ ((.Values.redis).auth).rayPasswordKey | default "ray-password" | quote }}
{{- end }}
{{- end -}}

{{/* Ray's user: always an ACL user on our own server; on an external one only where a name is given. */}}
{{- define "isthmus.redis.rayUsername" -}}
{{- $redis := .Values.redis | default dict -}}
{{- ($redis.auth).rayUsername | default (ternary "ray" "" ($redis.enabled | default false)) -}}
{{- end -}}

{{- define "isthmus.redis.routerUsername" -}}
{{- $redis := .Values.redis | default dict -}}
{{- ($redis.auth).routerUsername | default (ternary "router" "" ($redis.enabled | default false)) -}}
{{- end -}}
