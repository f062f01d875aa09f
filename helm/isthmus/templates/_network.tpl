{{/* Decides who may talk to whom: everything not named here is denied, in both directions. */}}

{{- define "isthmus.network.on" -}}
{{- if (.Values.networkPolicy).enabled -}}true{{- end -}}
{{- end -}}

{{- define "isthmus.network.dns" -}}
- to:
    {{- include "isthmus.yaml" ((.Values.networkPolicy).dns | default (list (dict "namespaceSelector" dict))) | nindent 4 }}
  ports:
    {{- range (.Values.networkPolicy).dnsPorts | default (list 53) }}
    - port: {{ int . }}
      protocol: UDP
    - port: {{ int . }}
      protocol: TCP
    {{- end }}
{{- end -}}

{{/* One component of this release as a peer. Call with (dict "root" $ "component" c). */}}
{{- define "isthmus.network.peer" -}}
- podSelector:
    matchLabels:
      {{- include "isthmus.selectorLabels" . | nindent 6 }}
{{- end -}}

{{/* All Ray pods of this release, of the old and of the new cluster during an upgrade. */}}
{{- define "isthmus.network.ray" -}}
{{ include "isthmus.network.peer" (dict "root" . "component" "ray-head") }}
{{ include "isthmus.network.peer" (dict "root" . "component" "ray-worker") }}
{{- end -}}

{{/* Scrapes. Call with (dict "root" $ "port" p). */}}
{{- define "isthmus.network.scrape" -}}
{{- with (.root.Values.networkPolicy).monitoring -}}
- from:
    {{- include "isthmus.yaml" . | nindent 4 }}
  ports:
    - port: {{ $.port }}
      protocol: TCP
{{- end }}
{{- end -}}

{{/* Egress to the Kubernetes API, which is no pod. */}}
{{- define "isthmus.network.kubernetesApi" -}}
{{- $api := (.Values.networkPolicy).kubernetesApi | default dict -}}
- ports:
    {{- range $api.ports | default (list 443 6443) }}
    - port: {{ int . }}
      protocol: TCP
    {{- end }}
  {{- with $api.peers }}
  to:
    {{- include "isthmus.yaml" . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* Egress to Redis: the pods of our own server, or the peers that stand for an external one. */}}
{{- define "isthmus.network.toRedis" -}}
- ports:
    - port: {{ include "isthmus.redis.port" . }}
      protocol: TCP
  {{- if (.Values.redis).enabled }}
  to:
    {{- include "isthmus.network.peer" (dict "root" . "component" "redis") | nindent 4 }}
  {{- else }}
  {{- with ((.Values.redis).external).peers }}
  to:
    {{- include "isthmus.yaml" . | nindent 4 }}
  {{- end }}
  {{- end }}
{{- end -}}

{{/* Port of a URL: said, or that of its scheme. */}}
{{/* Egress to the collector of traces. Call with (dict "root" $ "settings" s), where s are a tier's settings. */}}
{{- define "isthmus.network.toCollector" -}}
{{- with ((.settings).tracing).endpoint -}}
- ports:
    - port: {{ include "isthmus.network.portOf" . }}
      protocol: TCP
  {{- with (($.root.Values.networkPolicy).collector).peers }}
  to:
    {{- include "isthmus.yaml" . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "isthmus.network.portOf" -}}
{{- $url := urlParse . -}}
{{- if regexMatch ":[0-9]+$" $url.host -}}
  {{- regexFind "[0-9]+$" $url.host -}}
{{- else -}}
  {{- ternary "443" "80" (eq $url.scheme "https") -}}
{{- end -}}
{{- end -}}
