{{/* Decides what people are called for. Every alert has a runbook of the same name in docs/runbooks. */}}

{{/* One rule. Call with (dict "root" $ "alert" … "expr" … "for" … "severity" … "summary" …). */}}
{{- define "isthmus.alert" -}}
{{- $base := .root.Values.monitoring.prometheusRule.runbookUrl | default "docs/runbooks" | trimSuffix "/" }}
- alert: {{ .alert }}
  expr: {{ .expr | toJson }}
  for: {{ .for }}
  labels:
    severity: {{ .severity }}
  annotations:
    summary: {{ .summary | toJson }}
    runbook_url: {{ printf "%s/%s.md" $base (.alert | trimPrefix "Isthmus" | kebabcase) }}
{{- end -}}

{{- define "isthmus.alerts.router" -}}
{{- $rule := .Values.monitoring.prometheusRule -}}
{{- $of := printf "namespace=%q,service=%q" .Release.Namespace (include "isthmus.router.name" .) -}}
{{- $share := printf "100 * sum(rate(isthmus_router_requests_total{%s,outcome=~\"%%s\"}[5m])) / sum(rate(isthmus_router_requests_total{%s}[5m])) > %v" $of $of ($rule.failedPercent | default 5) -}}
{{- include "isthmus.alert" (dict "root" . "alert" "IsthmusRouterDown" "severity" "critical" "for" "2m"
    "expr" (printf "absent(up{%s} == 1)" $of)
    "summary" "No router answers its scrapes.") }}
{{- include "isthmus.alert" (dict "root" . "alert" "IsthmusRequestsFailing" "severity" "critical" "for" "10m"
    "expr" (printf $share "backend_error|error|broken")
    "summary" (printf "More than %v %% of requests end in an error." ($rule.failedPercent | default 5))) }}
{{- include "isthmus.alert" (dict "root" . "alert" "IsthmusNoCapacity" "severity" "warning" "for" "10m"
    "expr" (printf $share "capacity")
    "summary" (printf "More than %v %% of requests are turned away for lack of room." ($rule.failedPercent | default 5))) }}
{{- include "isthmus.alert" (dict "root" . "alert" "IsthmusFirstTokenSlow" "severity" "warning" "for" "10m"
    "expr" (printf "histogram_quantile(0.95, sum by (le, tier) (rate(isthmus_router_ttft_seconds_bucket{%s}[5m]))) > %v" $of ($rule.firstTokenSeconds | default 5))
    "summary" (printf "One answer in twenty begins later than %v s." ($rule.firstTokenSeconds | default 5))) }}
{{- include "isthmus.alert" (dict "root" . "alert" "IsthmusNoBackend" "severity" "critical" "for" "5m"
    "expr" (printf "max by (namespace) (sum by (namespace, pod) (isthmus_router_backends{%s,state=\"ready\"})) == 0" $of)
    "summary" "No router knows a backend that is ready.") }}
{{- include "isthmus.alert" (dict "root" . "alert" "IsthmusBreakerOpen" "severity" "warning" "for" "10m"
    "expr" (printf "sum by (pod) (isthmus_router_breakers{%s,state=\"open\"}) > 0" $of)
    "summary" "A backend has been failing, and is left alone, for ten minutes.") }}
{{- if include "isthmus.redis.present" . }}
{{- include "isthmus.alert" (dict "root" . "alert" "IsthmusStateStoreDown" "severity" "critical" "for" "1m"
    "expr" (printf "min by (pod) (isthmus_router_state_store_up{%s}) == 0" $of)
    "summary" "A router cannot reach Redis; it uses the fleet as it was last known, and not for long.") }}
{{- end }}
{{- include "isthmus.alert" (dict "root" . "alert" "IsthmusAuditLost" "severity" "critical" "for" "0m"
    "expr" (printf "increase(isthmus_router_audit_lost_total{%s}[10m]) > 0" $of)
    "summary" "Audit records of public requests were dropped.") }}
{{- include "isthmus.alert" (dict "root" . "alert" "IsthmusPolicyRefused" "severity" "warning" "for" "1m"
    "expr" (printf "max by (pod) (isthmus_router_policy_file_refused{%s}) == 1" $of)
    "summary" "A router refused the policy file as it is; an earlier policy is in force.") }}
{{- include "isthmus.alert" (dict "root" . "alert" "IsthmusScannerErrors" "severity" "warning" "for" "10m"
    "expr" (printf "sum by (cause) (rate(isthmus_router_scanner_errors_total{%s}[5m])) > 0" $of)
    "summary" "Bodies cannot be scanned wholly; they count as class unknown and stay at the edge.") }}
{{- end -}}

{{- define "isthmus.alerts.cloud" -}}
{{- $cloud := include "isthmus.cloud.name" . -}}
{{- $of := printf "namespace=%q,ray_cluster=~%q" .Release.Namespace (printf "%s-.+" $cloud) -}}
{{- $service := printf "namespace=%q,name=%q,condition!=\"false\"" .Release.Namespace $cloud -}}
{{- include "isthmus.alert" (dict "root" . "alert" "IsthmusCloudNotReady" "severity" "critical" "for" "15m"
    "expr" (printf "kuberay_service_info{namespace=%q,name=%q} unless on (namespace, name) (kuberay_service_condition_ready{%s} == 1)" .Release.Namespace $cloud $service)
    "summary" "The RayService takes no requests.") }}
{{- include "isthmus.alert" (dict "root" . "alert" "IsthmusUpgradeStuck" "severity" "warning" "for" "45m"
    "expr" (printf "kuberay_service_condition_upgrade_in_progress{%s} == 1" $service)
    "summary" "A new Ray cluster has not become ready; the old one serves on.") }}
{{- include "isthmus.alert" (dict "root" . "alert" "IsthmusReplicaUnhealthy" "severity" "warning" "for" "10m"
    "expr" (printf "count by (deployment) (ray_serve_deployment_replica_healthy{%s} == 0) > 0" $of)
    "summary" "A replica fails its health check and is not replaced.") }}
{{- include "isthmus.alert" (dict "root" . "alert" "IsthmusEngineQueueing" "severity" "warning" "for" "10m"
    "expr" (printf "sum by (model_name) (ray_vllm_num_requests_waiting{%s}) > sum by (model_name) (ray_vllm_num_requests_running{%s})" $of $of)
    "summary" "More requests wait in vLLM than run.") }}
{{- include "isthmus.alert" (dict "root" . "alert" "IsthmusKvCacheFull" "severity" "warning" "for" "10m"
    "expr" (printf "max by (model_name) (ray_vllm_kv_cache_usage_perc{%s}) > 0.95" $of)
    "summary" "The KV cache of an engine is full; it preempts requests and computes them again.") }}
{{- end -}}
