// The pages' names for the JSON of the console's HTTP API. The shapes are generated from
// openapi.yaml, which the server is held to.

import type { components, operations } from "./openapi";

type Schemas = components["schemas"];

/** An RFC 3339 time. */
export type Time = string;

export type Colour = Schemas["Colour"];
export type Phase = Schemas["Phase"];
export type Dimension = Schemas["DimensionName"];
export type DimensionHealth = Schemas["Dimension"];
export type Reason = Schemas["Reason"];
export type Place = Schemas["Place"];
export type Maintenance = Schemas["Maintenance"];
export type Site = Schemas["SiteHealth"];
export type SiteChange = Schemas["SiteChange"];
export type SiteDetail = Schemas["SiteHealthDetail"];
export type Signal = Schemas["SignalReading"];
export type Explanation = Schemas["SiteHealthExplanation"];
export type ExplainedDimension = Explanation["dimensions"][number];
export type ExplainedSignal = ExplainedDimension["signals"][number];
export type SiteList = Schemas["SiteHealthList"];
export type VirtualSite = Schemas["VirtualSiteHealth"];
export type Counts = VirtualSite["counts"];
export type VirtualSiteList = Schemas["VirtualSiteHealthList"];

/** A site as the control plane knows it. */
export type SiteObject = Schemas["Site"];
export type SiteReset = NonNullable<SiteObject["reset"]>;
export type Condition = SiteObject["conditions"][number];
export type Registration = Schemas["Registration"];
export type RegistrationList = Schemas["RegistrationList"];
export type MaintenanceWindow = Schemas["MaintenanceWindow"];
export type VirtualSiteMaintenance = Schemas["VirtualSiteMaintenance"];

export type SitePage = Schemas["SitePage"];
export type SiteMap = Schemas["SiteMap"];
export type SiteDistributions = Schemas["SiteDistributions"];
export type SiteDistribution = Schemas["SiteDistribution"];
export type LinkPage = Schemas["LinkPage"];
export type LinkRegional = Schemas["LinkRegional"];
export type LinkSummary = Schemas["LinkSummary"];
export type Link = Schemas["Link"];
export type SiteRow = Schemas["SiteRow"];
export type SiteGroup = Schemas["SiteGroup"];
export type SiteField = Schemas["SiteField"];
export type SiteFields = Schemas["SiteFields"];
export type SitesChanged = Schemas["SitesChanged"];

export type SavedView = Schemas["SavedView"];
export type SavedViewList = Schemas["SavedViewList"];
export type VirtualHost = Schemas["VirtualHost"];

export type Tenant = Schemas["TenantList"]["tenants"][number];
export type QuotaUse = Tenant["quotas"][number];

export type CostBy = Schemas["CostBy"];
export type CostSort = Schemas["CostSort"];
export type Use = Schemas["Use"];
export type CostRow = Schemas["CostRow"];
export type CostPage = Schemas["CostPage"];
export type RegionalRoom = Schemas["RegionalRoom"];
export type Resource = Schemas["Headroom"]["resources"][number];
export type CostNames = Schemas["NamesPage"];

export type Login = Schemas["Login"];
export type Logout = Schemas["Logout"];
export type Session = Schemas["Session"];
export type Rights = Schemas["Rights"];

export type AlertRules = Schemas["AlertRules"];
export type Runbook = Schemas["Runbook"];
export type HealthPolicies = Schemas["HealthPolicies"];
export type HealthPolicy = HealthPolicies["policies"][number];
export type PolicySignal = HealthPolicy["signals"][number];
export type HealthPolicyDetail = Schemas["HealthPolicyDetail"];
export type HealthPolicySpec = Schemas["HealthPolicySpec"];
export type PolicySpecSignal = HealthPolicySpec["signals"][number];
export type HealthTrial = Schemas["HealthTrial"];
export type HealthReplay = Schemas["HealthReplay"];
export type HealthOutcome = Schemas["HealthOutcome"];

/** Prometheus' answer to a range query. */
export interface Matrix {
  status: "success" | "error";
  error?: string;
  warnings?: string[];
  data?: { resultType: string; result: { metric: Record<string, string>; values: [number, string][] }[] };
}

/** Prometheus' answer to an instant query. */
export interface Vector {
  status: "success" | "error";
  error?: string;
  warnings?: string[];
  data?: { resultType: string; result: { metric: Record<string, string>; value: [number, string] }[] | [number, string] };
}
export type MetricNames = Schemas["MetricNames"];
export type MetricCondition = Schemas["MetricCondition"];

export type LogRecord = Schemas["LogRecord"];
export type LogPage = Schemas["LogPage"];
/** Bucket i counts the records from start + i * stepSeconds up to the next. */
export type LogHistogram = NonNullable<LogPage["histogram"]>;
export type MissingRegion = Schemas["MissingRegion"];

export type Alert = Schemas["Alert"];
export type AlertStateName = Alert["state"];
export type AlertDetail = Schemas["AlertDetail"];
export type AlertSpan = AlertDetail["history"][number];
export type SeverityCounts = Schemas["SeverityCounts"];
export type TimelineKind = Schemas["TimelineKind"];
export type TimelineEvent = Schemas["TimelineEvent"];
export type TimelinePage = Schemas["TimelinePage"];
export type AlertList = Schemas["AlertList"];
export type AlertGroup = Schemas["AlertGroup"];
export type AlertGroupList = Schemas["AlertGroupList"];
export type LoudnessList = Schemas["LoudnessList"];
export type AlertState = Schemas["AlertState"];
export type Matcher = Schemas["Matcher"];
export type Silence = Schemas["SilenceList"]["silences"][number];
export type SilenceState = Silence["state"];
export type SilenceRequest = operations["silence"]["requestBody"]["content"]["application/json"];

export type VirtualKubernetes = Schemas["VirtualKubernetes"];
export type VirtualKubernetesDetail = Schemas["VirtualKubernetesDetail"];
export type WorkloadState = Schemas["WorkloadState"];
export type WorkloadCounts = Schemas["WorkloadCounts"];
export type Workload = Schemas["Workload"];
export type WorkloadSite = Schemas["WorkloadSite"];
export type WorkloadDetail = Schemas["WorkloadDetail"];
export type WorkloadObject = Schemas["WorkloadObject"];
export type SiteWorkloads = Schemas["SiteWorkloads"];
export type Pod = Schemas["Pod"];
export type PodList = Schemas["PodList"];
export type ApplyResult = Schemas["ApplyResult"];
export type Applied = ApplyResult["objects"][number];
export type ApplyRequest = operations["applyObjects"]["requestBody"]["content"]["application/json"];

export type Rollout = Schemas["Rollout"];
export type RolloutList = Schemas["RolloutList"];
export type RolloutDetail = Schemas["RolloutDetail"];
export type RolloutPhase = Schemas["RolloutPhase"];
export type RolloutStep = Schemas["RolloutStep"];
export type RolloutCounts = Schemas["RolloutCounts"];
export type RolloutWave = Schemas["RolloutWaveStatus"];
export type RolloutSite = Schemas["RolloutSite"];
export type RolloutSiteList = Schemas["RolloutSiteList"];
export type RolloutDecision = Schemas["RolloutDecision"];
export type GateReading = Schemas["GateReading"];
export type GateVerdict = Schemas["GateVerdict"];
