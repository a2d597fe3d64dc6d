// Generated from dashboards/console/openapi.yaml by `make generate`; don't edit.

export interface paths {
    "/api/v1/openapi.json": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** This document */
        get: operations["getOpenAPI"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/session": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Who is logged in, and what they may read */
        get: operations["getSession"];
        put?: never;
        /**
         * Trade a token for a session cookie
         * @description The cookie `muster_session` is HttpOnly, SameSite=Strict, and Secure over TLS. The token travels sealed inside it and
         *     is reviewed by the API server again and again, so that revoking the token ends the session within seconds.
         *     Ten wrong tokens from one address, and further wrong ones are answered with 429; a good one always logs in. Over TLS
         *     the cookie is named `__Host-muster_session`; a session that is too large for one cookie takes several.
         */
        post: operations["login"];
        /**
         * Log out
         * @description Makes the browser forget the cookie. A session with an identity provider is revoked there, if the provider offers that (RFC 7009). A token that was pasted stays valid until it is revoked or expires.
         */
        delete: operations["logout"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/rights": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * What the user may do, and in which tenants
         * @description For pages that offer only what may be done. It decides nothing; the API server is asked again when something is done. Answers are some seconds old at most.
         */
        get: operations["getRights"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/login": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * How to log in
         * @description For the login page and `muster login`. A token always does; an identity provider where one is configured.
         */
        get: operations["getLogin"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tenants": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Tenants, and what they use of their quotas */
        get: operations["listTenants"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/cost": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What sites, virtual sites and tenants take of the regionals */
        get: operations["listCost"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/cost/names": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The metrics with the most series of a tenant, or of one of its sites */
        get: operations["listCostNames"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/kubernetes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Where the Kubernetes API is
         * @description For the kubeconfig that `muster login` writes. The address is the one under which the console reaches it.
         */
        get: operations["getKubernetes"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/session/oidc": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Log in with the identity provider
         * @description Sends the browser to the identity provider: authorization code with PKCE, state and nonce. The session's cookie then
         *     holds the ID token, and the refresh token if there is one, sealed; the ID token is renewed at two thirds of its life.
         */
        get: operations["beginOIDC"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/session/oidc/callback": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Where the identity provider sends the browser back to
         * @description Register this address at the identity provider. Only the browser that began gets a session; else it is sent to the
         *     login page with a reason, `/#login=` and one of `expired`, `denied`, `failed`, `refused`, `unavailable`.
         */
        get: operations["finishOIDC"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/health/sites": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Health of sites */
        get: operations["listSiteHealth"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/health/sites/{site}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Health of one site, with every signal */
        get: operations["getSiteHealth"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/health/sites/{site}/explain": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The arithmetic of a site's score, from readings to colour */
        get: operations["explainSiteHealth"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/health/virtualsites": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Health of virtual sites */
        get: operations["listVirtualSiteHealth"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/health/virtualsites/{virtualSite}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Health of one virtual site */
        get: operations["getVirtualSiteHealth"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/health/policies": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The health policies in effect, and how their queries do */
        get: operations["listHealthPolicies"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/health/policies/{policy}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** A health policy as it was written, and how its queries do */
        get: operations["getHealthPolicy"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/health/try": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * What a health policy would change, without applying it
         * @description Evaluates the tenant's sites with the policy in the body and with the policies in force, both on readings of this moment and in the
         *     long run, and lists the sites whose colour or score would differ. A policy in force of the same name is what it would replace. Nothing
         *     is written. The policy is checked as it is when it is written; its queries see the tenant's series alone.
         */
        post: operations["tryHealthPolicy"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/health/replay": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * What a health policy would have made of the last hours
         * @description Evaluates the history of the tenant's sites, as the metric store has it, with the policy in the body, and sets its changes of colour
         *     beside those on record. It takes up to ten sites in one go; `nextCursor` leads to the next. Readings are at most 1440 a signal, on
         *     full evaluations; between them the last one holds. A query that would be too dear over the time is refused.
         */
        post: operations["replayHealthPolicy"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/health/stream": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Follow changes of health, as server-sent events
         * @description Read the lists first, then the stream. `id` is the number of the evaluation tick. Events:
         *
         *     - `sites`: `{asOf, sites: [SiteHealth]}`, every site that changed, whole; of a brief stream `{asOf, sites: [SiteChange]}`
         *     - `virtualsites`: `{asOf, virtualSites: [VirtualSite]}`
         *     - `removed`: `{asOf, sites: [{tenant, name}]}`
         *     - `tick`: `{asOf}`, after each evaluation
         *
         *     A comment line comes every 15 s. The stream ends when the token is no longer good or the user's rights have changed;
         *     connect again, and read the lists again.
         */
        get: operations["streamHealth"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sites": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * The sites that a query means, as a table
         * @description Filtered, sorted, grouped and counted where the sites are: a page has as many as its limit says, of however many there are.
         *     docs/inventory.md has the query language, and GET /api/v1/site-fields its fields.
         */
        get: operations["listSites"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/views": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Saved views of the inventory
         * @description The user's own, and those that are shared in the tenants whose sites the user may list. They are objects of the kind SavedViews in the
         *     tenant's system namespace.
         */
        get: operations["listViews"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/views/{view}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * Save a view of the inventory under a name
         * @description Adds or replaces one of the user's own, or with `shared` one of all users of the tenant, which takes the verb `share` on
         *     `savedviews.muster.dev`. A person has 50 at most in a tenant, and so have all together.
         */
        put: operations["saveView"];
        post?: never;
        /** Delete a saved view */
        delete: operations["deleteView"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sites:change": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Do one thing to many sites
         * @description Exactly one of labels, maintenance, endMaintenance and approve. Each site is changed by itself and in the user's own name, so some
         *     may fail: the status is 200 all the same, and `failed` names them.
         */
        post: operations["changeSites"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/site-fields": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * What sites can be asked for by
         * @description The fields of the query language, and the labels and components that the user's sites have, for completion.
         */
        get: operations["listSiteFields"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/site-map": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * What a map draws
         * @description The sites that a query means and that have a place, as lists of the same length, and one column to colour them by.
         */
        get: operations["getSiteMap"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/site-distributions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * How numbers spread over sites
         * @description For each column mean, quantiles and bins over the sites that a query means. Each bin has the query that means its sites.
         */
        get: operations["getSiteDistributions"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/links": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * The links between sites and regionals
         * @description A row a site of the query, the worst link first, and summaries of all of them for each regional. Filtered, sorted and summed up where
         *     the sites are. Figures are what agents measure (docs/reference/link-metrics.md), null where they are not known.
         *     What a link was like over time is asked of GET /api/v1/metrics/query_range.
         */
        get: operations["listLinks"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sites/{site}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** A site as the control plane knows it */
        get: operations["getSite"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sites/{site}/maintenance": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * Put a site into maintenance
         * @description It is then left out of the health of its virtual sites, and counted apart.
         */
        put: operations["setMaintenance"];
        post?: never;
        /** End a site's maintenance */
        delete: operations["endMaintenance"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sites/{site}/reset": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Have a site go back to how it was before it registered
         * @description It comes back as the same site, with a new key. Its own operator must have switched that on. It takes the verb reset on sites, beside the right to write the Site. A request from before is replaced.
         */
        post: operations["askReset"];
        /**
         * Take back the request to reset a site
         * @description A site that has begun goes on.
         */
        delete: operations["cancelReset"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sites/{site}/maintenance/windows/{window}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * Plan maintenance of a site, once or again and again
         * @description While a window is open the site is in maintenance, and its alerts are silenced. A window of the same name is replaced.
         */
        put: operations["planSiteMaintenance"];
        post?: never;
        /** Drop planned maintenance of a site */
        delete: operations["dropSiteMaintenance"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/virtualsites/{namespace}/{virtualSite}/maintenance/windows": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Planned maintenance of a virtual site's members */
        get: operations["listVirtualSiteMaintenance"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/virtualsites/{namespace}/{virtualSite}/maintenance/windows/{window}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * Plan maintenance of all members of a virtual site
         * @description A window of the same name is replaced.
         */
        put: operations["planVirtualSiteMaintenance"];
        post?: never;
        /** Drop planned maintenance of a virtual site */
        delete: operations["dropVirtualSiteMaintenance"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sites/{site}/workloads": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * What runs on a site
         * @description Of the virtual Kubernetes that the user may read: it takes both `list sites.muster.dev` in `<tenant>-system` and
         *     `get virtualkubernetes.muster.dev` in their namespaces.
         */
        get: operations["listSiteWorkloads"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/virtualhosts": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Virtual hosts
         * @description Services of some sites that others reach by name. Who may `get virtualhosts.muster.dev` in a namespace sees those there, and who may
         *     `get advertisepolicies.muster.dev` where they are advertised. No right to the tenant's sites is needed.
         */
        get: operations["listVirtualHosts"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/vk8s": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Virtual Kubernetes
         * @description Who may `get virtualkubernetes.muster.dev` in a namespace sees the one there. No right to the tenant's sites is needed.
         */
        get: operations["listVirtualKubernetes"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/vk8s/{namespace}/{vk8s}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** One virtual Kubernetes, and what the user may do there */
        get: operations["getVirtualKubernetes"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/vk8s/{namespace}/{vk8s}/kubeconfig": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * A kubeconfig for kubectl and Helm
         * @description Without credentials. Where people log in with an identity provider its user asks `muster` for a token, which has one after `muster login`; else
         *     it reads the token from a file `muster.token` beside it.
         */
        get: operations["getVirtualKubeconfig"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/vk8s/{namespace}/{vk8s}/apply": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Apply objects
         * @description Server-side apply in the user's own name, with the field manager `muster-console`. The API server is first asked whether it
         *     would take every object (a dry run, which runs admission too and refuses unknown fields); what it refuses is told at the
         *     object, with the field. Only when it takes all of them are they stored, in their order.
         */
        post: operations["applyObjects"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/vk8s/{namespace}/{vk8s}/workloads": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Workloads of a virtual Kubernetes */
        get: operations["listWorkloads"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/vk8s/{namespace}/{vk8s}/workloads/{kind}/{workload}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** One workload, with its sites */
        get: operations["getWorkload"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/vk8s/{namespace}/{vk8s}/workloads/{kind}/{workload}/object": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** A workload as it was written */
        get: operations["getWorkloadObject"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/vk8s/{namespace}/{vk8s}/workloads/{kind}/{workload}/pods": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Pods of a workload */
        get: operations["listWorkloadPods"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/vk8s/{namespace}/{vk8s}/pods/{pod}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * Delete a pod
         * @description Wants `delete` on `pods` in the namespace.
         */
        delete: operations["deletePod"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/vk8s/{namespace}/{vk8s}/pods/{pod}/log": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Follow the log of a pod
         * @description Server-sent events, through the site's own connection. Wants `get` on `pods/log` in the namespace; the stream ends when
         *     the right does.
         */
        get: operations["followPodLog"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/rollouts": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Rollouts
         * @description Of all namespaces in which the user may `list rollouts.muster.dev`. A rollout is an object of that kind on the API server;
         *     what is here is read and written there in the user's own name.
         */
        get: operations["listRollouts"];
        put?: never;
        /**
         * Start a rollout
         * @description Makes an object of the kind Rollout in the user's own name. What is wrong with it is told with the field; unknown fields
         *     are refused. With `dryRun` it is checked and not made.
         */
        post: operations["startRollout"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/rollouts/stream": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Follow rollouts, as server-sent events
         * @description Begins with what there is. Events:
         *
         *     - `rollout`: a Rollout as in the list, whole, whenever something of it changes
         *     - `removed`: the same, as it was last
         *
         *     A comment line comes every 15 s. The stream ends when the token is no longer good or the user's rights have changed,
         *     and now and then by itself; connect again, and it begins anew. It takes the right to `watch rollouts.muster.dev`.
         */
        get: operations["streamRollouts"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/rollouts/{rollout}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** One rollout, by its name alone */
        get: operations["getRolloutByName"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/rollouts/{rollout}/gates": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Why a rollout stands where it stands, by its name alone */
        get: operations["getRolloutGatesByName"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/rollouts/{namespace}/{rollout}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** One rollout */
        get: operations["getRollout"];
        put?: never;
        post?: never;
        /** Delete a rollout that has ended */
        delete: operations["deleteRollout"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/rollouts/{namespace}/{rollout}/sites": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Sites of a rollout, and where each stands */
        get: operations["listRolloutSites"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/rollouts/{namespace}/{rollout}/gates": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Why a rollout stands where it stands */
        get: operations["getRolloutGates"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/rollouts/{namespace}/{rollout}/stream": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Follow one rollout, as server-sent events
         * @description Begins with what there is. Events:
         *
         *     - `rollout`: the RolloutDetail, whole, whenever something of it changes
         *     - `removed`: the same, as it was last
         *
         *     A comment line comes every 15 s. The stream ends when the token is no longer good or the user's rights have changed,
         *     and now and then by itself; connect again, and it begins anew. It takes the right to `watch rollouts.muster.dev`.
         */
        get: operations["streamRollout"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/rollouts/{namespace}/{rollout}/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Let no further site change
         * @description Sets `spec.control.paused`. Sites that are changing go on.
         */
        post: operations["pauseRollout"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/rollouts/{namespace}/{rollout}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Go on
         * @description Takes `spec.control.paused` back and raises `spec.control.resume`, so that a rollout that paused by itself goes on too: what
         *     failed until then no longer counts, and a wave that was put back begins anew.
         */
        post: operations["resumeRollout"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/rollouts/{namespace}/{rollout}/promote": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Let a wave pass though its gates do not
         * @description Raises `spec.control.promote`. It takes the verb `approve` on rollouts where only a person's approval is missing, and
         *     `skip-gates` where gates do not hold.
         */
        post: operations["promoteRollout"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/rollouts/{namespace}/{rollout}/abort": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Put all sites back
         * @description Sets `spec.control.abort`; it can't be taken back.
         */
        post: operations["abortRollout"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/rollouts/{namespace}/{rollout}/retry": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Try failed sites again
         * @description Counts up `spec.control.retry` of the sites.
         */
        post: operations["retryRollout"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/gates:evaluate": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Ask whether sites are well enough to go on
         * @description For pipelines outside of Muster: the gates of a rollout, read once, for the sites of a virtual site that something else has
         *     changed. Makes an object of the kind GateCheck in the user's own name, and waits for its verdict. The status is 200 whatever
         *     the verdict: look at `pass`, or at `verdict`. Without a verdict within 25 s it is 202, with the verdict Unknown; Location
         *     says where the check can be read.
         */
        post: operations["evaluateGates"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/gates/{namespace}/{check}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read a gate check again
         * @description Checks are kept for an hour.
         */
        get: operations["getGateCheck"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/registrations": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Machines that wait for approval, oldest first */
        get: operations["listRegistrations"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/registrations/{site}/approve": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Let a machine have its certificate
         * @description Approving twice is no error, as long as the second request asks for nothing new.
         */
        post: operations["approveRegistration"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/registrations/{site}/reject": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Refuse a machine for good
         * @description The Site stays, decommissioned, so that the machine can't register again under its key. Delete the Site to undo it.
         */
        post: operations["rejectRegistration"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/logs/search": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Search the logs of all regions, newest first
         * @description All regions are asked at once. Those that did not answer in time, or not usably, are in `missingRegions`, and the
         *     page is made of the others: an empty list means that nothing is missing. The next page asks a missing region from
         *     where it was left, so that its records are not lost; they may then be newer than the end of the page before. The same
         *     page may be asked again with the same cursor. There is no `nextCursor` when all regions that answered have
         *     no more. Times such as now-1h stay over the pages what they were on the first.
         *
         *     A page may be shorter than `limit` though there are more, when its records are large.
         */
        get: operations["searchLogs"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/logs/tail": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Follow the logs of all regions, as server-sent events
         * @description Begins now; search for what was before. Events:
         *
         *     - `hits`: `{hits: [LogRecord]}`, oldest first within an event. Late records come when they arrive.
         *     - `missing`: `{missingRegions: [{region, reason}]}`, when all regions have been asked and whenever it changes
         *
         *     `id`, handed back as `Last-Event-ID`, goes on where the stream was, in each region. A region that comes back goes on
         *     where it was lost. A comment line comes every 15 s. The stream ends when the token is no longer good or the
         *     user's rights have changed.
         */
        get: operations["tailLogs"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/timeline": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * What happened in the fleet, the newest first
         * @description Colour changes, alerts, notifications, silences, maintenance, registrations, connections, edits, rollouts and software.
         *     Needs the right to list sites in the tenant's system namespace. Each of three roles keeps a part; what a role that does not
         *     answer would have told is named in missing. Grafana's JSON data sources take it for annotations: events[] with time, text,
         *     kind and site.
         */
        get: operations["getTimeline"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/alerts": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Alerts that fire, the most severe first, then the newest */
        get: operations["listAlerts"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/alerts/groups": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * What fires now, grouped as routes group it
         * @description A group is what a receiver gets in one notification, by the group_by of its AlertRoute. An alert that several routes take is in several.
         */
        get: operations["listAlertGroups"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/alerts/notifications": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Which rules notified how often in the last 24 hours, the loudest first
         * @description One notification about alerts of several rules counts for each of them.
         */
        get: operations["countNotifications"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/alerts/state": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * What fires now, in figures
         * @description Cheap enough to be asked every few seconds, by every rollout gate.
         */
        get: operations["getAlertState"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/alerts/{fingerprint}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** One alert, with when it has fired before */
        get: operations["getAlert"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/alertrules": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Make alert rules
         * @description Makes an object of the kind AlertRules in the tenant's system namespace, in the user's own name, which takes the verb `create` on
         *     `alertrules.muster.dev`. What is wrong with it is told with the field; unknown fields are refused. A name that is taken is a conflict
         *     whose error is of the field `name`. With `dryRun` it is checked and not made.
         */
        post: operations["makeAlertRules"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/alertrules/{rules}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** How far alert rules have come */
        get: operations["getAlertRules"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runbooks/{alert}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What an alert that ships with Muster means, and what to do first */
        get: operations["getRunbook"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/silences": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Silences */
        get: operations["listSilences"];
        put?: never;
        /**
         * Silence alerts of a tenant for a while
         * @description Silences the tenant's alerts that all matchers fit; the server adds the tenant. They are shown on, as suppressed. It lasts from
         *     `startsAt`, or now, up to `endsAt` or for `duration`.
         */
        post: operations["silence"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/silences/{silence}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** End a silence now */
        delete: operations["endSilence"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/metrics/query": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Evaluate PromQL at one moment
         * @description The parameters and the answer are those of the Prometheus HTTP API. The tenant is set by the server.
         */
        get: operations["query"];
        put?: never;
        /** Evaluate PromQL at one moment, for long expressions */
        post: operations["queryByForm"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/metrics/query_range": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Evaluate PromQL over a stretch of time */
        get: operations["queryRange"];
        put?: never;
        /** Evaluate PromQL over a stretch of time, for long expressions */
        post: operations["queryRangeByForm"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/metrics/names": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List names of metrics and labels, and values of a label
         * @description Without label: names of labels. Names of metrics are the values of the label __name__. The tenant is set by the server.
         */
        get: operations["metricNames"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/metrics/condition": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Take an expression apart into what it measures and its bounds
         * @description For charts of rules and signals: x > 5 is the value x and the bound > 5. Nothing is evaluated.
         */
        get: operations["metricCondition"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /** @description RFC 9457. */
        Problem: {
            /**
             * @description Tells programs what is wrong
             * @example urn:muster:problem:invalid
             */
            type: string;
            title: string;
            status: number;
            /** @description Tells people what is wrong, and what to do */
            detail?: string;
            /** @description The number of this incident in the log */
            instance?: string;
            errors?: {
                field: string;
                detail: string;
            }[];
            /** @description Tenants that have a site of the wanted name */
            tenants?: string[];
        };
        TenantName: string;
        SiteName: string;
        /**
         * @description Over 75 green, 40 to 75 orange, under 40 red, unknown grey
         * @enum {string}
         */
        Colour: "green" | "orange" | "red" | "grey";
        /** @enum {string} */
        Phase: "Pending" | "Approved" | "Online" | "Offline" | "Decommissioned";
        /** @enum {string} */
        DimensionName: "connectivity" | "reliability" | "security" | "performance";
        /** @description null when unknown */
        Score: number | null;
        Labels: {
            [key: string]: string;
        };
        VirtualHost: {
            tenant: components["schemas"]["TenantName"];
            /**
             * @description As the tenant's users type it
             * @example shop
             */
            namespace: string;
            /** @example db-global */
            name: string;
            /**
             * @description The name under which it is reached
             * @example db-global
             */
            host: string;
            /** @description Under which it is reached; 0: it is not advertised, or the user may not read where */
            port: number;
            /**
             * @description That serves it
             * @example db
             */
            service: string;
            servicePort: number;
            /** @enum {string} */
            protocol: "TCP" | "HTTP";
            /** @description Of HTTP, what goes to other Services, in the order in which they are tried. */
            routes: {
                /**
                 * @description Of the request; "": any
                 * @example api.example.com
                 */
                host: string;
                /**
                 * @description With which that of the request begins
                 * @example /v1
                 */
                path: string;
                /** @example api */
                service: string;
                servicePort: number;
            }[];
            /**
             * @description Whose sites serve it
             * @example shared/datacenters
             */
            virtualSite: string;
            /** @description Sites that serve it */
            providers: number;
            /** @description Of these */
            providersOnline: number;
            /** @description Sites to which it is advertised */
            consumers: number;
            /** Format: date-time */
            createdAt: string;
            ready: boolean;
            /**
             * @description One of [the condition's](vk8s.md); "" until control has looked
             * @example NoProviderOnline
             */
            reason: string;
            /** @description What is in the way first, or that nothing is */
            message: string;
            /** @description The AdvertisePolicies that name it. */
            policies: {
                /** @example shops */
                name: string;
                virtualSites: string[];
                sites: number;
                /** @description Why it, or a virtual site in it, does not count; "" when all do */
                fault: string;
            }[];
        };
        SavedView: {
            name: string;
            tenant: components["schemas"]["TenantName"];
            /** @description Of all users of the tenant; else the user's own */
            shared: boolean;
            /** @description Which sites, as q of GET /api/v1/sites */
            query: string;
            sort: string;
            /** @description None: those that are shown at first */
            columns: string[];
            group: string;
        };
        SavedViewList: {
            views: components["schemas"]["SavedView"][];
            /** @description Tenants in which the user may share views */
            shareIn: components["schemas"]["TenantName"][];
        };
        VirtualHostList: {
            virtualHosts: components["schemas"]["VirtualHost"][];
        };
        VirtualKubernetes: {
            tenant: components["schemas"]["TenantName"];
            /**
             * @description As the tenant's users type it
             * @example shop
             */
            namespace: string;
            /** @example vk8s */
            name: string;
            /**
             * @description Where objects go that name none
             * @example shared/all-eu
             */
            defaultVirtualSite: string;
            /** @description Path on the Kubernetes API server, "" until it is served */
            url: string;
            /** @description That hold objects of it */
            sites: number;
            /** @description Of these */
            online: number;
            objects: number;
            /** Format: date-time */
            createdAt: string;
            /** @description Why it is not ready; "" when it is */
            fault: string;
        };
        VirtualKubernetesList: {
            virtualKubernetes: components["schemas"]["VirtualKubernetes"][];
        };
        VirtualKubernetesDetail: {
            tenant: components["schemas"]["TenantName"];
            /**
             * @description As the tenant's users type it
             * @example shop
             */
            namespace: string;
            /** @example vk8s */
            name: string;
            /**
             * @description Where objects go that name none
             * @example shared/all-eu
             */
            defaultVirtualSite: string;
            /** @description Path on the Kubernetes API server, "" until it is served */
            url: string;
            /** @description That hold objects of it */
            sites: number;
            /** @description Of these */
            online: number;
            objects: number;
            /** Format: date-time */
            createdAt: string;
            /** @description Why it is not ready; "" when it is */
            fault: string;
            /** @description What the user may do there. The API server has the last word. */
            rights: {
                /** @description create and patch deployments.apps */
                deploy: boolean;
                /** @description delete pods */
                deletePods: boolean;
                /** @description get pods/log */
                readLogs: boolean;
            };
        };
        /**
         * @description Waiting: not applied yet. RolledBack: the last good one is in effect again
         * @enum {string}
         */
        WorkloadState: "Ready" | "Progressing" | "Waiting" | "RolledBack" | "Failed";
        /** @description Sites by the state that the workload is in there. Those that are offline count by what they said last, and apart. */
        WorkloadCounts: {
            sites: number;
            ready: number;
            progressing: number;
            waiting: number;
            failed: number;
            rolledBack: number;
            offline: number;
            /** @description Where somebody changed it on the site */
            drifted: number;
        };
        /** @description Both 0 for kinds without pods. */
        WorkloadPods: {
            desired: number;
            ready: number;
        };
        WorkloadReason: {
            /**
             * @description CamelCase
             * @example ImagePullBackOff
             */
            reason: string;
            message: string;
            /** @description How many have it */
            sites: number;
            /** @description One of them */
            example: string;
        };
        WorkloadSite: {
            site: components["schemas"]["SiteName"];
            online: boolean;
            state: components["schemas"]["WorkloadState"];
            reason?: string;
            message?: string;
            /** Format: date-time */
            since?: string;
            pods: components["schemas"]["WorkloadPods"];
            /** @description Digest of what the site should hold */
            wanted: string;
            /** @description Of what it holds */
            digest?: string;
            drifted?: boolean;
            /** @description Those that somebody changed on the site, never what is in them */
            fields?: string[];
            /** @description Why none are named where something is otherwise: Forbidden, to who may not get the object, or NotKept */
            noFields?: string;
        };
        Workload: {
            /** @example apps */
            group?: string;
            /** @example v1 */
            version?: string;
            /** @example Deployment */
            kind: string;
            name: string;
            /** Format: date-time */
            created?: string;
            images?: string[];
            /** @description As their users type them */
            virtualSites: string[];
            counts: components["schemas"]["WorkloadCounts"];
            pods: components["schemas"]["WorkloadPods"];
            /** @description Why sites are not ready; that of most sites first */
            reasons: components["schemas"]["WorkloadReason"][];
            /** @description Not in the list of all */
            sites?: components["schemas"]["WorkloadSite"][];
        };
        WorkloadDetail: {
            /** @example apps */
            group?: string;
            /** @example v1 */
            version?: string;
            /** @example Deployment */
            kind: string;
            name: string;
            /** Format: date-time */
            created?: string;
            images?: string[];
            /** @description As their users type them */
            virtualSites: string[];
            counts: components["schemas"]["WorkloadCounts"];
            pods: components["schemas"]["WorkloadPods"];
            /** @description Why sites are not ready; that of most sites first */
            reasons: components["schemas"]["WorkloadReason"][];
            /** @description Not in the list of all */
            sites: components["schemas"]["WorkloadSite"][];
        };
        WorkloadList: {
            items: components["schemas"]["Workload"][];
        };
        SiteWorkloads: {
            tenant: components["schemas"]["TenantName"];
            site: components["schemas"]["SiteName"];
            virtualKubernetes: {
                namespace: string;
                name: string;
                items: components["schemas"]["Workload"][];
            }[];
        };
        WorkloadObject: {
            yaml: string;
            annotations: components["schemas"]["Labels"];
            labels: components["schemas"]["Labels"];
            resourceVersion: string;
        };
        Pod: {
            name: string;
            site: string;
            /** @description SITE-NODE */
            node: string;
            /** @example Running */
            phase: string;
            /** @description Of its containers */
            ready: number;
            /** @description By name, those for its start last */
            containers: string[];
            restarts: number;
            /** Format: date-time */
            createdAt: string;
            deleting: boolean;
            /**
             * @description Why it is not ready, CamelCase; "" when nothing is wrong
             * @example CrashLoopBackOff
             */
            reason: string;
            message: string;
        };
        PodList: {
            pods: components["schemas"]["Pod"][];
            nextCursor?: string;
        };
        ApplyResult: {
            /** @description All objects are stored */
            applied: boolean;
            objects: {
                /** @description In the YAML, from 1 */
                document: number;
                group: string;
                version: string;
                kind: string;
                name: string;
                /**
                 * @description What it does to what is there; "" with an error
                 * @enum {string}
                 */
                change: "create" | "change" | "none" | "";
                /** @description That it names; none: the default one */
                virtualSites: string[];
                /** @description Of the API server */
                warnings: string[];
                error: {
                    detail: string;
                    /** @description Somebody else manages fields; force takes them over */
                    conflict: boolean;
                    errors: {
                        field: string;
                        detail: string;
                    }[];
                } | null;
            }[];
        };
        TenantList: {
            tenants: {
                name: components["schemas"]["TenantName"];
                /** @description Those whose use is known. */
                quotas: {
                    /** @enum {string} */
                    quota: "sites" | "series" | "logBytesPerDay" | "objects" | "objectBytes";
                    /**
                     * Format: int64
                     * @description Of logBytesPerDay: since midnight UTC
                     */
                    used: number;
                    /**
                     * Format: int64
                     * @description 0: none
                     */
                    limit: number;
                }[];
            }[];
        };
        /** @enum {string} */
        CostBy: "site" | "virtualsite" | "tenant";
        /** @enum {string} */
        CostSort: "name" | "series" | "samples" | "bytes" | "pushes" | "refused" | "lines" | "logBytes" | "cpu" | "memory";
        /** @description Rates are means over windowSeconds. */
        Use: {
            /**
             * Format: int64
             * @description In the memory of the regionals; of a tenant, those that its rules make too.
             */
            series: number;
            samplesPerSecond: number;
            /** @description Bodies of pushes as they come, compressed. */
            wireBytesPerSecond: number;
            /** @description The same uncompressed. */
            rawBytesPerSecond: number;
            pushesPerSecond: number;
            /** @description Pushes that were answered with 429. */
            refusedPerSecond: number;
            logLinesPerSecond: number;
            /** @description Uncompressed. */
            logBytesPerSecond: number;
            /** @description An estimate of the share of the regionals' processor time. */
            cpuCores: number;
            /** @description An estimate of the share of the regionals' memory. */
            memoryBytes: number;
        };
        CostRow: {
            tenant: components["schemas"]["TenantName"];
            /** @description Of a virtual site. */
            namespace?: string;
            /** @description Of a site or virtual site. */
            name?: string;
            /** @description That the row is about. */
            sites: number;
            /** @description That know of them. */
            regionals: string[];
            /**
             * Format: int64
             * @description Of a tenant, at all regionals that know it; absent: any number.
             */
            seriesLimit?: number;
            /**
             * Format: int64
             * @description Of a tenant: for how many more sites like its own that is enough; absent when not known.
             */
            moreSites?: number | null;
            use: components["schemas"]["Use"];
        };
        Headroom: {
            /** @description Those with series; a site like these is their mean. */
            sites: number;
            /**
             * Format: int64
             * @description How many more sites like these the regional carries; null when not known, such as before the first.
             */
            moreSites: number | null;
            /**
             * @description The resource that ends first; empty when not known.
             * @enum {string}
             */
            first: "" | "memory" | "cpu" | "disk" | "series";
            resources: {
                /** @enum {string} */
                name: "memory" | "cpu" | "disk" | "series";
                /** @description Bytes, cores or series; of the disk, when its retention is full. */
                used: number;
                /** @description 0: none, or not known. */
                limit: number;
                /** @description 0: not known. */
                perSite: number;
                /** @description What other processes of the machine take of what the regional may use; limit is without it. Of processors alone, absent when nothing. */
                others?: number;
                /** Format: int64 */
                moreSites: number | null;
            }[];
        };
        RegionalRoom: {
            name: string;
            region: string;
            headroom: components["schemas"]["Headroom"];
            process: components["schemas"]["Use"];
        };
        CostPage: {
            /** Format: date-time */
            asOf: string;
            by: components["schemas"]["CostBy"];
            /** @description The shortest that a regional's rates are means over. */
            windowSeconds: number;
            /** @description Of all pages. */
            total: number;
            sum: components["schemas"]["Use"];
            rows: components["schemas"]["CostRow"][];
            /** @description For those who may read all tenants and ask for all; else absent. */
            regionals?: components["schemas"]["RegionalRoom"][];
            missingRegions: components["schemas"]["MissingRegion"][];
            nextCursor?: string;
        };
        NamesPage: {
            /** Format: date-time */
            asOf: string;
            tenant: components["schemas"]["TenantName"];
            site?: components["schemas"]["SiteName"];
            /**
             * Format: int64
             * @description Of all names.
             */
            series: number;
            /** @description The counts are estimates: of very many series only a part was looked at. */
            sampled: boolean;
            names: components["schemas"]["HeavyName"][];
            missingRegions: components["schemas"]["MissingRegion"][];
        };
        HeavyName: {
            name: string;
            /** Format: int64 */
            series: number;
            /** @description The fields of collection policies that let it leave the site; it is dropped by taking it out of each. None when it comes another way. */
            keptBy: {
                policy: string;
                /** @example spec.allow.patterns[2] */
                field: string;
                /** @description The pattern. */
                value?: string;
            }[];
        };
        Login: {
            /** @description null: with a token only. */
            oidc: {
                /** @example https://login.example.com */
                issuerURL: string;
                clientID: string;
                scopes: string[];
                /** @description The CA of the identity provider, PEM; absent: a public one. */
                ca?: string;
            } | null;
        };
        /**
         * @example {
         *       "user": "alice",
         *       "groups": [
         *         "acme-sre",
         *         "system:authenticated"
         *       ],
         *       "tenants": [
         *         "acme"
         *       ]
         *     }
         */
        Session: {
            user: string;
            groups: string[];
            /** @description Names of the tenants that the user may read */
            tenants: string[];
        };
        /**
         * @example {
         *       "tenant": "acme",
         *       "name": "site-memory-high",
         *       "createdAt": "2026-01-31T12:00:00Z",
         *       "rules": 1,
         *       "regionals": 2,
         *       "applied": "True",
         *       "message": "in effect on every regional"
         *     }
         */
        AlertRules: {
            tenant: components["schemas"]["TenantName"];
            name: string;
            /** Format: date-time */
            createdAt: string;
            /** @description How many it has, as control counted them */
            rules: number;
            /** @description Regionals that evaluate the rules as they stand */
            regionals: number;
            /**
             * @description Whether every regional does
             * @enum {string}
             */
            applied: "True" | "False" | "Unknown";
            /** @description What it waits for, or why a regional refuses it */
            message: string;
        };
        /**
         * @example {
         *       "rights": [
         *         {
         *           "right": "patch sites.muster.dev",
         *           "all": false,
         *           "tenants": [
         *             "acme"
         *           ]
         *         },
         *         {
         *           "right": "create silences.muster.dev",
         *           "all": false,
         *           "tenants": []
         *         },
         *         {
         *           "right": "delete silences.muster.dev",
         *           "all": false,
         *           "tenants": []
         *         }
         *       ]
         *     }
         */
        Rights: {
            rights: {
                /**
                 * @description Verb and resource, as RBAC has them
                 * @example patch sites.muster.dev
                 */
                right: string;
                /** @description In every tenant, also those to come */
                all: boolean;
                /** @description Names of the tenants in whose system namespace the user has it */
                tenants: string[];
            }[];
        };
        /**
         * @example {
         *       "endSessionURL": "https://login.example.com/end?client_id=muster"
         *     }
         */
        Logout: {
            /**
             * Format: uri
             * @description Page of the identity provider that a browser has to go to
             */
            endSessionURL: string;
        };
        /**
         * @example {
         *       "latitude": 48.8566,
         *       "longitude": 2.3522,
         *       "address": "Paris"
         *     }
         */
        Place: {
            latitude: number;
            longitude: number;
            address?: string;
        } | null;
        Maintenance: {
            reason: string;
            /** Format: date-time */
            until?: string | null;
        } | null;
        /** @description How far the last factory reset is; null where nobody has asked for one */
        SiteReset: {
            /** @enum {string} */
            phase: "Asked" | "Confirmed" | "Resetting" | "Completed" | "Expired" | "Refused" | "Cancelled";
            /**
             * Format: date-time
             * @description Since when it is in that phase; null until control has seen the request
             */
            since: string | null;
            /**
             * Format: date-time
             * @description Until when the site may begin; null once it has begun, or it is over
             */
            expires: string | null;
            message: string;
            /** @description It began more than an hour ago and is not back */
            overdue: boolean;
        } | null;
        Dimension: {
            score: components["schemas"]["Score"];
            colour: components["schemas"]["Colour"];
            /** @description At least half of the signals' weight is known */
            known: boolean;
            /** @description Age of the score; more than 0 when it is an old one */
            staleSeconds: number;
        };
        /**
         * @example {
         *       "dimension": "reliability",
         *       "signal": "nodes-not-ready",
         *       "value": 1,
         *       "threshold": 0,
         *       "pointsLost": 61,
         *       "since": "2026-01-31T11:58:30Z",
         *       "text": "1 node is not ready"
         *     }
         */
        Reason: {
            dimension: components["schemas"]["DimensionName"];
            signal: string;
            value: number | null;
            threshold: number | null;
            /** @description Points of the site's score that this signal costs */
            pointsLost: number;
            /** Format: date-time */
            since: string | null;
            text: string;
        };
        /**
         * @description A site that changed, in a brief stream. What is left out is as it was.
         * @example {
         *       "tenant": "acme",
         *       "name": "paris-07",
         *       "colour": "red",
         *       "phase": "Offline",
         *       "text": "offline"
         *     }
         */
        SiteChange: {
            tenant: components["schemas"]["TenantName"];
            name: string;
            colour?: components["schemas"]["Colour"];
            phase?: components["schemas"]["Phase"];
            /** @description The first reason for lost points, beside a colour; left out where there is none */
            text?: string;
        };
        HealthOutcome: {
            score: components["schemas"]["Score"];
            colour: components["schemas"]["Colour"];
            /** @description The first; empty when there is none */
            reason: string;
        };
        Recolour: {
            /** Format: date-time */
            at: string;
            /** @description The same as to: what a site began with, which differs */
            from: components["schemas"]["Colour"];
            to: components["schemas"]["Colour"];
            /** @description Empty for what is on record */
            reason: string;
        };
        HealthReplay: {
            /** Format: date-time */
            from: string;
            /** Format: date-time */
            to: string;
            tenant: string;
            policy: string;
            /** @description How far apart the readings are */
            stepSeconds: number;
            sites: {
                site: string;
                /** @description Changes of colour by the policy */
                would: components["schemas"]["Recolour"][];
                /** @description Changes of colour on record */
                did: components["schemas"]["Recolour"][];
                last: components["schemas"]["HealthOutcome"];
                /** @description Not the same colours at about the same times: within two steps and a minute */
                differs: boolean;
            }[];
            /** @description Sites that are done with these */
            done: number;
            total: number;
            nextCursor?: string;
            signals: {
                name: string;
                dimension: components["schemas"]["DimensionName"];
                error: string;
                sitesKnown: number;
            }[];
        };
        HealthTrial: {
            /** Format: date-time */
            asOf: string;
            tenant: string;
            policy: string;
            /** @description Regionals that were not waited for any longer */
            missingRegions: components["schemas"]["MissingRegion"][];
            /** @description Sites of these, which are in no other figure */
            waiting: number;
            /** @description Sites that the policy would be in force for, or no longer would be */
            sites: number;
            /** @description Of these with another colour */
            changed: number;
            /** @description Sites with another colour or score: changes of colour first, then who loses most */
            results: {
                site: string;
                before: components["schemas"]["HealthOutcome"];
                after: components["schemas"]["HealthOutcome"];
            }[];
            /** @description Results beyond the first 1000 */
            omitted: number;
            signals: {
                name: string;
                dimension: components["schemas"]["DimensionName"];
                error: string;
                sitesKnown: number;
            }[];
        };
        SiteHealthExplanation: {
            site: string;
            tenant: string;
            /** @description Name of the HealthPolicy; empty for the shipped one */
            policy: string;
            /** @description The policy is in shadow; this score counts for nothing */
            shadow: boolean;
            overrides: {
                signals: string[];
                reason: string;
                /** Format: date-time */
                until: string;
            }[];
            /** Format: date-time */
            at: string;
            score: components["schemas"]["Score"];
            colour: components["schemas"]["Colour"];
            /**
             * Format: date-time
             * @description When the colour changed
             */
            since: string;
            /** @description beforeCaps = (1 − worstShare)·mean + worstShare·worst */
            worstShare: number;
            mean: number;
            worst: number;
            worstDimension: string;
            beforeCaps: number;
            /** @description That sum for people; empty while the score is unknown */
            formula: string;
            dimensions: {
                name: components["schemas"]["DimensionName"];
                weight: number;
                /** @description False when nothing of it is at the site */
                applies: boolean;
                known: boolean;
                /** @description Something that the site should have is unknown */
                incomplete: boolean;
                beforeCaps: number;
                score: number;
                signals: {
                    name: string;
                    value: number | null;
                    unit: string;
                    good: number;
                    bad: number;
                    /** @description 0 to 1 */
                    score: number | null;
                    weight: number;
                    /** @description False when its pack is not at the site */
                    applies: boolean;
                    counted: boolean;
                    error: string;
                    objects: string[];
                    pack: string;
                    /** @description The exporter that gives the metric */
                    source: string;
                    /** @description That it loses of the site's 100, its cap's included */
                    points: number;
                }[];
            }[];
            caps: {
                /** @description Empty for what is unknown */
                signal: string;
                at: number;
                /** @description The score before caps if the signal were good */
                without: number;
                leaves: number;
                binds: boolean;
                /** @description The arithmetic for people */
                text: string;
            }[];
            /** @description The score is kept at the top of the colour's band until the colour gets better */
            held: boolean;
            /** @description Evaluations in a row that asked for another colour */
            agreed: number;
            /** @description How many of them it takes; 0 while none does */
            needed: number;
            /** @description That for people */
            waits: string;
            lost: {
                dimension: components["schemas"]["DimensionName"];
                signal: string;
                points: number;
                text: string;
            }[];
        };
        SiteHealth: {
            name: string;
            tenant: string;
            region: string;
            virtualSites: string[];
            phase: components["schemas"]["Phase"];
            /** Format: date-time */
            lastSeen: string | null;
            score: components["schemas"]["Score"];
            colour: components["schemas"]["Colour"];
            /**
             * Format: date-time
             * @description When the colour changed
             */
            since: string | null;
            dimensions: {
                connectivity: components["schemas"]["Dimension"];
                reliability: components["schemas"]["Dimension"];
                security: components["schemas"]["Dimension"];
                performance: components["schemas"]["Dimension"];
            };
            /** @description The costliest first */
            reasons: components["schemas"]["Reason"][];
            place: components["schemas"]["Place"];
            maintenance: components["schemas"]["Maintenance"];
        };
        SiteHealthDetail: {
            name: string;
            tenant: string;
            region: string;
            virtualSites: string[];
            phase: components["schemas"]["Phase"];
            /** Format: date-time */
            lastSeen: string | null;
            score: components["schemas"]["Score"];
            colour: components["schemas"]["Colour"];
            /**
             * Format: date-time
             * @description When the colour changed
             */
            since: string | null;
            dimensions: {
                connectivity: components["schemas"]["Dimension"];
                reliability: components["schemas"]["Dimension"];
                security: components["schemas"]["Dimension"];
                performance: components["schemas"]["Dimension"];
            };
            /** @description The costliest first */
            reasons: components["schemas"]["Reason"][];
            place: components["schemas"]["Place"];
            maintenance: components["schemas"]["Maintenance"];
            /**
             * Format: date-time
             * @description The evaluation that it is from
             */
            asOf: string;
            labels: components["schemas"]["Labels"];
            /** @description Name of the HealthPolicy; empty: the shipped one */
            policy: string;
            /** @description The regional that the site sends to */
            regional: string;
            /** @description The regional can't be asked, so the values come from Cortex */
            fromStore: boolean;
            signals: components["schemas"]["SignalReading"][];
            /** @description What the policy in shadow makes of the site, which counts for nothing; null: there is none */
            shadow: {
                policy: string;
                score: components["schemas"]["Score"];
                colour: components["schemas"]["Colour"];
                reason: string;
            } | null;
        };
        SignalReading: {
            name: string;
            dimension: components["schemas"]["DimensionName"];
            value: number | null;
            /** @description 1 at good, 0 at bad */
            score: number | null;
            known: boolean;
            /** @description False when its pack is not at the site */
            applies: boolean;
            /** @description What the site must have for it to apply; empty for every site */
            pack: string;
            /** @description Why it is unknown */
            error: string;
            good: number;
            bad: number;
            weight: number;
            /** @description At 0 it caps the dimension and the site at 39 */
            critical: boolean;
            unit: string;
            /** @description The exporter that gives the metric */
            source: string;
            /** Format: date-time */
            asOf: string | null;
            /** @description Its PromQL as the policy has it; at a site that is scraped seldom, with wider windows */
            query: string;
            /** @description No series means that nothing is wrong */
            sparse: boolean;
        };
        SiteHealthList: {
            /**
             * Format: date-time
             * @description The evaluation tick; null before the first
             */
            asOf: string | null;
            /** @description Sites that match, on all pages */
            total: number;
            sites: components["schemas"]["SiteHealth"][];
            nextCursor?: string;
        };
        SitePage: {
            /**
             * Format: date-time
             * @description What the answer is of
             */
            asOf: string;
            /** @description Their names in the query language, as rows have them */
            columns: string[];
            /** @description Sites that the user may read */
            readable: number;
            /** @description Of these, what the query means, on all pages */
            total: number;
            counts: components["schemas"]["ColourCounts"];
            /** @description The largest first, when they were asked for; of all pages */
            groups?: components["schemas"]["SiteGroup"][];
            sites: components["schemas"]["SiteRow"][];
            nextCursor?: string;
            /** @description What is missing in the answer, and why */
            notes: string[];
        };
        /** @description Sites that have a place. names, tenant, latitude, longitude and score are as long as each other; colour has a letter a site. */
        SiteMap: {
            /**
             * Format: date-time
             * @description What the answer is of
             */
            asOf: string;
            /** @description Sites that the user may read */
            readable: number;
            /** @description Of these, what the query means, with a place or without */
            total: number;
            /** @description Of these, those without a place */
            unplaced: number;
            /** @description Of total, those in planned work */
            maintenance: number;
            counts: components["schemas"]["ColourCounts"];
            tenants: string[];
            names: string[];
            /** @description Positions in tenants */
            tenant: number[];
            /** @description Degrees north */
            latitude: number[];
            /** @description Degrees east */
            longitude: number[];
            /** @description A letter a site: g(reen), o(range), r(ed), or x for grey */
            colour: string;
            /** @description 0 to 100, null where it is not known */
            score: (number | null)[];
            /** @description Positions in names */
            inMaintenance: number[];
            /** @description The column that was asked for, empty if none was */
            by: string;
            /** @description What kind of field that is, as in SiteField */
            kind: string;
            /** @description Of a number: what the sites have, null where it is not known */
            values?: (number | null)[];
            /** @description Of anything else: the commonest values, at most 12 */
            categories?: string[];
            /** @description Positions in categories, -1 for another value */
            category?: number[];
            /** @description What is missing in the answer, and why */
            notes: string[];
        };
        SiteDistributions: {
            /**
             * Format: date-time
             * @description What the answer is of
             */
            asOf: string;
            /** @description Sites that the user may read */
            readable: number;
            /** @description Of these, what the query means */
            total: number;
            distributions: components["schemas"]["SiteDistribution"][];
            /** @description What is missing in the answer, and why */
            notes: string[];
        };
        /** @description Over the sites where the column is known; null where it is known of none. Quantiles are values that a site has. */
        SiteDistribution: {
            column: string;
            /** @description Sites where it is known */
            known: number;
            unknown: number;
            mean: number | null;
            least: number | null;
            p10: number | null;
            median: number | null;
            p90: number | null;
            most: number | null;
            bins: {
                from: number;
                /** @description Not in it, but in the last one */
                to: number;
                sites: number;
                /** @description What means these sites, to be added to the query that was asked for */
                query: string;
            }[];
        };
        LinkPage: {
            /**
             * Format: date-time
             * @description What the answer is of
             */
            asOf: string;
            /** @description Sites that the user may read */
            readable: number;
            /** @description Of these, what the query means, of all pages */
            total: number;
            counts: components["schemas"]["LinkCounts"];
            /** @description The column that groups are of */
            by: string;
            /** @description Those with the most sites first; one without a name has sites that never were connected */
            regionals: components["schemas"]["LinkRegional"][];
            links: components["schemas"]["Link"][];
            /** @description For the next page; missing on the last */
            nextCursor?: string;
            /** @description What is missing in the answer, and why */
            notes: string[];
        };
        /** @description Sites by the colour of their connectivity. */
        LinkCounts: {
            green: number;
            orange: number;
            red: number;
            grey: number;
        };
        /** @description One link. Figures are null where they are not known. */
        Link: {
            tenant: string;
            site: string;
            /** @description That the site is or was last connected to; empty: it never was */
            regional: string;
            region: string;
            phase: string;
            /**
             * Format: date-time
             * @description Missing: never
             */
            lastSeen?: string;
            colour: components["schemas"]["Colour"];
            /** @description The score of the dimension, 0 to 100 */
            connectivity: number | null;
            /** @description What the dimension loses most points by; empty: nothing */
            reason: string;
            /** @description Seconds that rates are over: four scrapes of the site, as its CollectionPolicy has it, 120 at least */
            window: number;
            /** @description Milliseconds */
            roundTrip: number | null;
            /** @description Percent of the TCP segments that were sent again, over the window, 5 minutes at least */
            loss: number | null;
            /** @description Bytes a second */
            sent: number | null;
            /** @description Bytes a second */
            received: number | null;
            /** @description Milliseconds, of the last TLS handshake */
            handshake: number | null;
            /** @description In an hour */
            reconnects: number | null;
            /** @description A minute */
            requests: number | null;
            /** @description Percent of the requests, over the window, 5 minutes at least */
            errors: number | null;
        };
        LinkRegional: {
            name: string;
            /** @description What means its sites, to be added to the query that was asked for */
            query: string;
            sites: number;
            counts: components["schemas"]["LinkCounts"];
            /** @description The lowest connectivity */
            worst: number | null;
            /** @description Median, milliseconds */
            roundTrip: number | null;
            /** @description Median, percent */
            loss: number | null;
            /** @description Together, bytes a second */
            sent: number | null;
            /** @description Together, bytes a second */
            received: number | null;
            /** @description Together, in an hour */
            reconnects: number | null;
            /** @description At most 12: those with the worst links, then the largest */
            groups: components["schemas"]["LinkGroup"][];
            /** @description The groups that are not listed, together; null when all are */
            more: components["schemas"]["LinkSummary"] | null;
        };
        LinkGroup: {
            /** @description Of the column; empty: the sites have none */
            value: string;
            query: string;
            sites: number;
            counts: components["schemas"]["LinkCounts"];
            worst: number | null;
            roundTrip: number | null;
            loss: number | null;
            sent: number | null;
            received: number | null;
            reconnects: number | null;
        };
        LinkSummary: {
            /** @description Empty: there is none */
            query: string;
            sites: number;
            counts: components["schemas"]["LinkCounts"];
            worst: number | null;
            roundTrip: number | null;
            loss: number | null;
            sent: number | null;
            received: number | null;
            reconnects: number | null;
        };
        SitesChanged: {
            /** @description Sites that are as was asked for, also those that were so before */
            changed: number;
            failed: {
                tenant: string;
                name: string;
                /** @description What a request for this site alone would have been answered with */
                status: number;
                detail: string;
            }[];
        };
        /** @description A site: beside its name and tenant a value for each column, which is text, a number, true or false, a list of texts, or null where it is not known. */
        SiteRow: {
            name: string;
            tenant: string;
        } & {
            [key: string]: components["schemas"]["SiteValue"];
        };
        SiteValue: (string | number | boolean | string[]) | null;
        SiteGroup: {
            /** @description empty: the sites that have none */
            value: string;
            /** @description The term that means these sites */
            query: string;
            sites: number;
            counts: components["schemas"]["ColourCounts"];
            mean: components["schemas"]["Score"];
            worst: components["schemas"]["Score"];
        };
        ColourCounts: {
            green: number;
            orange: number;
            red: number;
            grey: number;
        };
        SiteFields: {
            fields: components["schemas"]["SiteField"][];
            labels: components["schemas"]["SiteKey"][];
            versions: components["schemas"]["SiteKey"][];
            /** @description Signals of the user's health policies: the keys of measured */
            measured: string[];
        };
        SiteField: {
            name: string;
            aliases: string[];
            /** @enum {string} */
            kind: "text" | "choice" | "list" | "number" | "time" | "version" | "flag";
            /** @description Of a choice */
            values: string[];
            /** @description It has a key behind a dot, as label.tier */
            keyed: boolean;
            /** @description Sites can be grouped by it */
            grouped: boolean;
            doc: string;
            example: string;
        };
        SiteKey: {
            key: string;
            /** @description The commonest first */
            values: string[];
            /** @description Values that are not listed */
            more: number;
        };
        VirtualSiteHealth: {
            name: string;
            /** @description As users type it: without the tenant */
            namespace: string;
            tenant: string;
            description?: string;
            sites: number;
            mean: components["schemas"]["Score"];
            p10: components["schemas"]["Score"];
            worst: {
                site: string;
                score: components["schemas"]["Score"];
            } | null;
            counts: {
                green: number;
                orange: number;
                red: number;
                grey: number;
            };
            /** @description Members in maintenance; in no colour's count */
            maintenance: number;
            percentUnhealthy: number | null;
        };
        VirtualSiteHealthList: {
            /** Format: date-time */
            asOf: string | null;
            total: number;
            virtualSites: components["schemas"]["VirtualSiteHealth"][];
            nextCursor?: string;
        };
        Runbook: {
            alert: string;
            /** @description CommonMark without HTML; headings begin at level 2 */
            markdown: string;
        };
        HealthPolicies: {
            policies: components["schemas"]["HealthPolicyHealth"][];
        };
        HealthPolicyHealth: {
            /** @description empty: the shipped policy, which applies where no other does */
            tenant: string;
            name: string;
            sites: number;
            /** @description What is wrong with the policy itself */
            error: string;
            /** @description It counts for nothing */
            shadow: boolean;
            /** @description Of its sites those of another colour than the policy in force gives */
            wouldChange: number;
            /** @description Of these some: site, colours, first reason */
            examples: string[];
            signals: {
                name: string;
                dimension: components["schemas"]["DimensionName"];
                error: string;
                sitesKnown: number;
                queryMillis: number;
            }[];
        };
        HealthPolicyDetail: {
            /** Format: date-time */
            asOf: string;
            policy: components["schemas"]["HealthPolicyHealth"];
            spec: components["schemas"]["HealthPolicySpec"];
        };
        /** @description As kubectl writes it; docs/reference has all of it. Numbers are quantities such as "95" or "64Mi". */
        HealthPolicySpec: {
            siteSelector?: {
                matchLabels?: components["schemas"]["Labels"];
                matchExpressions?: {
                    key: string;
                    operator: string;
                    values?: string[];
                }[];
            };
            /** @enum {string} */
            mode?: "Enforce" | "Shadow";
            priority?: number;
            weights?: {
                [key: string]: string;
            };
            worstShare?: string;
            evaluations?: number;
            recoveryEvaluations?: number;
            packs?: {
                name: string;
                when: string;
            }[];
            overrides?: {
                sites?: string[];
                virtualSites?: string[];
                reason: string;
                /** Format: date-time */
                until: string;
                signals: {
                    name: string;
                    good?: string;
                    bad?: string;
                    ignore?: boolean;
                }[];
            }[];
            signals: {
                name: string;
                dimension: components["schemas"]["DimensionName"];
                query: string;
                good: string;
                bad: string;
                weight?: string;
                critical?: boolean;
                cap?: number;
                pack?: string;
                causes?: string[];
                objects?: string;
                min?: string;
                max?: string;
                sparse?: boolean;
                unit?: string;
                text?: string;
                source?: string;
            }[];
        };
        /**
         * @example {
         *       "name": "paris-07",
         *       "tenant": "acme",
         *       "phase": "Online",
         *       "labels": {
         *         "region": "eu-west",
         *         "store": "7"
         *       },
         *       "systemLabels": {
         *         "muster.dev/system-arch": "amd64"
         *       },
         *       "versions": {
         *         "agent": "0.1.0",
         *         "kernel": "6.12.0"
         *       },
         *       "software": [
         *         {
         *           "component": "agent",
         *           "running": "0.1.0",
         *           "wanted": "0.2.0",
         *           "state": "Downloading",
         *           "percent": 40,
         *           "startsAt": null,
         *           "message": ""
         *         }
         *       ],
         *       "conditions": [
         *         {
         *           "type": "PolicyApplied",
         *           "status": "True",
         *           "reason": "Applied",
         *           "message": "",
         *           "lastTransitionTime": "2026-01-31T09:00:00Z"
         *         }
         *       ],
         *       "place": {
         *         "latitude": 48.8566,
         *         "longitude": 2.3522,
         *         "address": "Paris"
         *       },
         *       "maintenance": null,
         *       "maintenanceWindows": [],
         *       "reset": null,
         *       "regional": "eu-1",
         *       "lastSeen": "2026-01-31T11:59:58Z",
         *       "createdAt": "2025-11-02T08:00:00Z",
         *       "certificateNotAfter": "2026-02-01T03:00:00Z",
         *       "policyHash": "3f9a0c",
         *       "token": "stores",
         *       "approved": true,
         *       "decommissioned": false
         *     }
         */
        Site: {
            name: string;
            tenant: string;
            phase: components["schemas"]["Phase"];
            labels: components["schemas"]["Labels"];
            /** @description Labels under muster.dev/, with their whole names */
            systemLabels: {
                [key: string]: string;
            };
            versions: components["schemas"]["Labels"];
            /** @description What the site can replace of its own software, and how far it is with what it shall run */
            software: components["schemas"]["SiteSoftware"][];
            conditions: {
                type: string;
                /** @enum {string} */
                status: "True" | "False" | "Unknown";
                reason: string;
                message: string;
                /** Format: date-time */
                lastTransitionTime: string;
            }[];
            place: components["schemas"]["Place"];
            maintenance: components["schemas"]["Maintenance"];
            /** @description Planned maintenance */
            maintenanceWindows: components["schemas"]["MaintenanceWindow"][];
            reset: components["schemas"]["SiteReset"];
            /** @description The regional that the site is connected to */
            regional: string;
            /** Format: date-time */
            lastSeen: string | null;
            /** Format: date-time */
            createdAt: string;
            /** Format: date-time */
            certificateNotAfter: string | null;
            /** @description Names the collection policy in effect on the site */
            policyHash: string;
            /** @description Name of the RegistrationToken that it came with */
            token: string;
            approved: boolean;
            decommissioned: boolean;
        };
        SiteSoftware: {
            /** @enum {string} */
            component: "os" | "agent" | "platform";
            /** @description Version that runs */
            running: string;
            /** @description Version that the state is about; empty: the one before, or none */
            wanted: string;
            /** @enum {string} */
            state: "" | "Available" | "Scheduled" | "Downloading" | "Installing" | "Done" | "Failed";
            /** @description Of the download, in steps of ten */
            percent: number | null;
            /**
             * Format: date-time
             * @description When it begins, where it is Scheduled
             */
            startsAt: string | null;
            message: string;
        };
        /**
         * @description Queued: behind another one, or not begun. The last four are ends.
         * @enum {string}
         */
        RolloutPhase: "Queued" | "Progressing" | "Paused" | "RollingBack" | "RolledBack" | "Completed" | "Superseded" | "Invalid";
        /**
         * @description offline: skipped, caught up when it returns. held: in maintenance or outside of its window. updating: got the change. ready: with it, while the wave's gates have not held long enough.
         * @enum {string}
         */
        RolloutStep: "waiting" | "offline" | "held" | "updating" | "ready" | "passed" | "failed" | "rolledBack";
        /** @enum {string} */
        RolloutStrategyType: "Canary" | "Rolling" | "BlueGreen";
        /**
         * @description Wait lacks time or sites, Unknown lacks data; both hold
         * @enum {string}
         */
        GateVerdict: "Pass" | "Wait" | "Unknown" | "Fail";
        /** @description Sites by what they are in. Passed ones are among the updated. */
        RolloutCounts: {
            total: number;
            waiting: number;
            updating: number;
            updated: number;
            passed: number;
            failed: number;
            offline: number;
            held: number;
            rolledBack: number;
        };
        RolloutChange: {
            /** @example apps/v1 */
            apiVersion: string;
            /** @example Deployment */
            kind: string;
            /** @example web */
            name: string;
            /**
             * @description What becomes of it, in words
             * @example web=shop/web:2
             */
            text: string;
        };
        RolloutWaveStatus: {
            /** @description Which of all waves it is, from 1 */
            number: number;
            name: string;
            sites: components["schemas"]["RolloutCounts"];
            /** @description How long its gates have to hold */
            soakSeconds: number;
            /** @description A person has to promote it */
            approval: boolean;
            /** Format: date-time */
            startedAt: string | null;
            /** Format: date-time */
            passedAt: string | null;
        };
        Rollout: {
            tenant: string;
            /** @description As users type it: without the tenant */
            namespace: string;
            name: string;
            /** Format: date-time */
            createdAt: string;
            phase: components["schemas"]["RolloutPhase"];
            /** @description Why it stands where it stands, in a sentence */
            message: string;
            changes: components["schemas"]["RolloutChange"][];
            /** @description Whose sites get the change; empty: all that hold the objects */
            virtualSites: string[];
            strategy: components["schemas"]["RolloutStrategyType"];
            /**
             * @description The wave and their number
             * @example 2/4
             */
            progress: string;
            /** @description The current one, from 1; 0: none yet */
            wave: number;
            /** @description How many waves there are */
            waveCount: number;
            /** @description All waves, or of more than 50 those around the current one */
            waves: components["schemas"]["RolloutWaveStatus"][];
            sites: components["schemas"]["RolloutCounts"];
            /** @description By people; a rollout that paused by itself has the phase alone */
            paused: boolean;
            /** @description What will be decided next */
            next: string;
            /** Format: date-time */
            nextAt: string | null;
            /** Format: date-time */
            startedAt: string | null;
            /** Format: date-time */
            endedAt: string | null;
        };
        RolloutList: {
            /** @description Rollouts that match, on all pages */
            total: number;
            rollouts: components["schemas"]["Rollout"][];
            nextCursor?: string;
        };
        RolloutDetail: {
            tenant: string;
            /** @description As users type it: without the tenant */
            namespace: string;
            name: string;
            /** Format: date-time */
            createdAt: string;
            phase: components["schemas"]["RolloutPhase"];
            /** @description Why it stands where it stands, in a sentence */
            message: string;
            changes: components["schemas"]["RolloutChange"][];
            /** @description Whose sites get the change; empty: all that hold the objects */
            virtualSites: string[];
            strategy: components["schemas"]["RolloutStrategyType"];
            /**
             * @description The wave and their number
             * @example 2/4
             */
            progress: string;
            /** @description The current one, from 1; 0: none yet */
            wave: number;
            /** @description How many waves there are */
            waveCount: number;
            /** @description All waves, or of more than 50 those around the current one */
            waves: components["schemas"]["RolloutWaveStatus"][];
            sites: components["schemas"]["RolloutCounts"];
            /** @description By people; a rollout that paused by itself has the phase alone */
            paused: boolean;
            /** @description What will be decided next */
            next: string;
            /** Format: date-time */
            nextAt: string | null;
            /** Format: date-time */
            startedAt: string | null;
            /** Format: date-time */
            endedAt: string | null;
            /** @description The user whose write it was made of; empty: somebody made the Rollout */
            by: string;
            /** @description The RolloutPolicy that it follows, if it was made of an ordinary write */
            policy: string;
            /** @description The rollout of the same objects that it took over from */
            supersedes: string;
            spec: components["schemas"]["RolloutSpec"];
            /** @description Of the current wave, as last read */
            gates: components["schemas"]["GateReading"][];
            /** @description The last 50, oldest first */
            decisions: components["schemas"]["RolloutDecision"][];
            /** @description What sites have of the objects; a site's has is an index */
            contents: components["schemas"]["RolloutContent"][];
            /** @description What the user may do; the API server has the last word. */
            rights: {
                /** @description Pause, resume, abort, retry */
                control: boolean;
                delete: boolean;
                /** @description Promote where only an approval is missing */
                approve: boolean;
                /** @description Promote where gates do not hold */
                skipGates: boolean;
            };
        };
        GateReading: {
            name: string;
            verdict: components["schemas"]["GateVerdict"];
            /** @description The reading in words, with its figures */
            text: string;
            value: string;
            limit: string;
            /** @description Read so far, of ofSites */
            sites: number;
            ofSites: number;
            /** @description Looked at so far in this wave, of ofSeconds */
            seconds: number;
            ofSeconds: number;
            /** @description Sites that speak most against it, at most five */
            worst: string[];
        };
        RolloutDecision: {
            /** Format: date-time */
            at: string;
            /** @example WavePassed */
            what: string;
            text: string;
            /** @description The user, if a person took it */
            by: string;
        };
        RolloutContent: {
            index: number;
            /** @description What names it, such as its images; may be empty */
            text: string;
            /** @description The one that the rollout brings */
            new: boolean;
        };
        RolloutSite: {
            site: string;
            /** @description From 1; 0: not known yet */
            wave: number;
            step: components["schemas"]["RolloutStep"];
            /** @description The index of the content that it shall have */
            has: number;
        };
        RolloutSiteList: {
            /** @description Sites that match, on all pages */
            total: number;
            /** @description By step, of the wave and text that were asked for */
            counts: {
                [key: string]: number;
            };
            sites: components["schemas"]["RolloutSite"][];
            nextCursor?: string;
        };
        RolloutGates: {
            tenant: string;
            namespace: string;
            name: string;
            phase: components["schemas"]["RolloutPhase"];
            message: string;
            wave: number;
            waveName: string;
            verdict: components["schemas"]["GateVerdict"];
            gates: components["schemas"]["GateReading"][];
            next: string;
            /** Format: date-time */
            nextAt: string | null;
            decisions: components["schemas"]["RolloutDecision"][];
        };
        /**
         * @example {
         *       "tenant": "acme",
         *       "namespace": "shared",
         *       "name": "api-7x2kq",
         *       "verdict": "Wait",
         *       "pass": false,
         *       "answered": true,
         *       "message": "4 of 30 sites, 6 of 15 min",
         *       "gates": [],
         *       "at": "2026-01-31T12:00:00Z"
         *     }
         */
        GateCheck: {
            tenant: string;
            namespace: string;
            name: string;
            verdict: components["schemas"]["GateVerdict"];
            /** @description The verdict is Pass */
            pass: boolean;
            /** @description false: there is no verdict yet, and Unknown stands for it */
            answered: boolean;
            message: string;
            gates: components["schemas"]["GateReading"][];
            /** Format: date-time */
            at: string | null;
        };
        /** @enum {string} */
        GateDimension: "Site" | "Connectivity" | "Reliability" | "Security" | "Performance";
        /** @description A Kubernetes quantity, such as 0.5 or 100m; answers have text */
        Quantity: string | number;
        GateChange: {
            dimensions?: components["schemas"]["GateDimension"][];
            /** @description Points */
            maxDrop?: number;
            /** @description PromQL in the place of dimensions, one value a site, of which more is worse */
            query?: string;
            maxRise?: components["schemas"]["Quantity"];
        };
        /** @description One kind is set besides the name. */
        RolloutGate: {
            name: string;
            ready?: {
                percent?: number;
            };
            score?: {
                dimension?: components["schemas"]["GateDimension"];
                minimum: number;
            };
            unhealthy?: {
                maxPercent: number;
            };
            before?: components["schemas"]["GateChange"];
            peers?: components["schemas"]["GateChange"];
            alerts?: {
                severities: string[];
            };
            query?: {
                query: string;
                min?: components["schemas"]["Quantity"];
                max?: components["schemas"]["Quantity"];
            };
            logs?: {
                query: string;
                maxCount: number;
            };
            webhook?: {
                url: string;
                tokenSecret?: string;
            };
        };
        /** @description The spec of the kind Rollout, as docs/reference has it. */
        RolloutSpec: {
            changes: {
                apiVersion: string;
                kind: string;
                name: string;
                /** @description By container */
                images?: {
                    [key: string]: string;
                };
                content?: {
                    [key: string]: unknown;
                };
                revision?: number;
            }[];
            virtualSites?: string[];
            strategy?: {
                type?: components["schemas"]["RolloutStrategyType"];
                waves?: {
                    name?: string;
                    percent?: number;
                    count?: number;
                    virtualSite?: string;
                    label?: string;
                    soak?: string;
                    approval?: boolean;
                }[];
                /** @description A number or a percentage */
                group?: string;
                blue?: string;
                maxInFlight?: number;
                spreadBy?: string[];
            };
            gates?: components["schemas"]["RolloutGate"][];
            /** @example 15m */
            soak?: string;
            /**
             * @description For how long after it is ready a site's scores and alerts may be of the update itself; they hold until then, and fail nothing
             * @example 15m
             */
            settle?: string;
            budget?: {
                /** @description A number or a percentage */
                maxFailed?: string;
                maxFailedInWave?: string;
                readyWithin?: string;
            };
            windows?: {
                days?: string[];
                from: string;
                to: string;
            }[];
            freezes?: {
                from: string;
                to: string;
                reason?: string;
            }[];
            /** @enum {string} */
            onFailure?: "Pause" | "RollBackWave" | "RollBackAll";
            control?: {
                paused?: boolean;
                promote?: number;
                resume?: number;
                abort?: boolean;
                retry?: {
                    [key: string]: number;
                };
            };
        };
        Registration: {
            name: string;
            tenant: string;
            labels: components["schemas"]["Labels"];
            systemLabels: components["schemas"]["Labels"];
            token: string;
            /** Format: date-time */
            createdAt: string;
            /** @description SHA-256 of the machine's public key, in hex: compare it with what the machine shows */
            publicKey: string;
        };
        RegistrationList: {
            registrations: components["schemas"]["Registration"][];
            nextCursor?: string;
        };
        /** @description Planned work: once, at start, or again and again, by schedule. */
        MaintenanceWindow: {
            name: string;
            reason: string;
            /** Format: date-time */
            start: string | null;
            /** @description cron's five fields; empty for a window that comes once */
            schedule: string;
            /** @description Of the schedule; empty: UTC */
            timeZone: string;
            /** @example 2h0m0s */
            duration: string;
        };
        VirtualSiteMaintenance: {
            tenant: string;
            namespace: string;
            name: string;
            maintenanceWindows: components["schemas"]["MaintenanceWindow"][];
        };
        /**
         * @example {
         *       "timestamp": "2026-01-31T11:59:58.123456789Z",
         *       "tenant": "acme",
         *       "site": "paris-07",
         *       "region": "eu-west",
         *       "node": "n1",
         *       "namespace": "shop",
         *       "pod": "checkout-5d4f",
         *       "container": "app",
         *       "unit": "",
         *       "severity": "error",
         *       "message": "out of memory",
         *       "id": "01JQ2Z"
         *     }
         */
        LogRecord: {
            /** Format: date-time */
            timestamp: string;
            tenant: string;
            site: string;
            region: string;
            node: string;
            namespace: string;
            pod: string;
            container: string;
            /** @description systemd unit, for lines from no pod */
            unit: string;
            /** @description stdout or stderr */
            stream?: string;
            severity: string;
            message: string;
            labels?: components["schemas"]["Labels"];
            /** @description With the timestamp, names the record for good */
            id: string;
        };
        LogPage: {
            hits: components["schemas"]["LogRecord"][];
            /** @description Records that match, on all pages, in the regions that answered */
            total: number;
            /** @description Bucket i counts the records from start + i * stepSeconds up to the next. */
            histogram: {
                /** Format: date-time */
                start: string;
                stepSeconds: number;
                counts: number[];
            } | null;
            missingRegions: components["schemas"]["MissingRegion"][];
            nextCursor?: string;
        };
        /**
         * @description colour: a site's colour changed. alert: an alert began or ended. notification: somebody was notified, or could not be.
         *     silence: alerts were silenced, or a silence ended by hand. maintenance: planned work began or ended. registration: a site came, was
         *     approved, decommissioned or removed. connection: a site connected or was lost. policy: an object that says how the fleet is run was
         *     written or deleted. rollout: a decision of a rollout, or what became of a site in it. software: a version at a site changed.
         * @enum {string}
         */
        TimelineKind: "colour" | "alert" | "notification" | "silence" | "maintenance" | "registration" | "connection" | "policy" | "rollout" | "software";
        TimelineEvent: {
            /**
             * @description Names the event for good within its tenant.
             * @example 1898b6c24ce0c6000062014182ed3867
             */
            id: string;
            /** Format: date-time */
            time: string;
            kind: components["schemas"]["TimelineKind"];
            /** @enum {string} */
            severity: "good" | "info" | "warning" | "critical";
            tenant: string;
            /** @description Of the object, as users type it. */
            namespace?: string;
            site?: string;
            /** @description NAMESPACE/NAME: those of the site at the time, or those that the object names. */
            virtualSites?: string[];
            /**
             * @description KIND/NAME of what it is about, where that is not the site.
             * @example HealthPolicy/strict
             */
            object?: string;
            /** @description Who did it. */
            by?: string;
            /** @description One line. */
            text: string;
            /** @description Colour, severity, version or state before, by kind. */
            before?: string;
            after?: string;
            /** @description Path of the console's page about it. */
            link?: string;
        };
        TimelinePage: {
            events: components["schemas"]["TimelineEvent"][];
            /** @description Gets what is older; absent at the end. */
            nextCursor?: string;
            /** @description Roles that did not answer, and what they would have told. */
            missing?: {
                role: string;
                /** @description Its address, where there are several of the role. */
                at?: string;
                kinds: components["schemas"]["TimelineKind"][];
                reason: string;
                /** @description It has not answered in time, and may when it is asked again. */
                late?: boolean;
            }[];
        };
        /**
         * @example {
         *       "region": "us-1",
         *       "reason": "did not answer within 10s"
         *     }
         */
        MissingRegion: {
            region: string;
            reason: string;
            /** @description It may still answer: the same search without patience waits for it. */
            late?: boolean;
        };
        /** @enum {string} */
        Severity: "critical" | "warning" | "info";
        Alert: {
            fingerprint: string;
            name: string;
            tenant: string;
            /** @description Empty for an alert of no single site */
            site: string;
            region: string;
            virtualSites: string[];
            /** @description critical, warning or info; what a rule says besides is passed on */
            severity: string;
            /**
             * @description resolved: fires no more; lists have none of these
             * @enum {string}
             */
            state: "active" | "suppressed" | "resolved";
            /** @description Ids of silences */
            silencedBy: string[];
            /** @description Fingerprints of alerts */
            inhibitedBy: string[];
            /** Format: date-time */
            startsAt: string;
            /** Format: date-time */
            updatedAt: string;
            /** Format: date-time */
            endsAt: string | null;
            labels: components["schemas"]["Labels"];
            annotations: components["schemas"]["Labels"];
            generatorURL: string;
        };
        AlertDetail: {
            fingerprint: string;
            name: string;
            tenant: string;
            /** @description Empty for an alert of no single site */
            site: string;
            region: string;
            virtualSites: string[];
            /** @description critical, warning or info; what a rule says besides is passed on */
            severity: string;
            /**
             * @description resolved: fires no more; lists have none of these
             * @enum {string}
             */
            state: "active" | "suppressed" | "resolved";
            /** @description Ids of silences */
            silencedBy: string[];
            /** @description Fingerprints of alerts */
            inhibitedBy: string[];
            /** Format: date-time */
            startsAt: string;
            /** Format: date-time */
            updatedAt: string;
            /** Format: date-time */
            endsAt: string | null;
            labels: components["schemas"]["Labels"];
            annotations: components["schemas"]["Labels"];
            generatorURL: string;
            /** @description When it has fired, newest first. */
            history: {
                /** Format: date-time */
                startsAt: string;
                /**
                 * Format: date-time
                 * @description null while it fires
                 */
                endsAt: string | null;
            }[];
        };
        SeverityCounts: {
            critical: number;
            warning: number;
            info: number;
        };
        AlertList: {
            /** Format: date-time */
            asOf: string;
            /** @description Alerts that match, on all pages */
            total: number;
            counts: components["schemas"]["SeverityCounts"];
            alerts: components["schemas"]["Alert"][];
            nextCursor?: string;
        };
        AlertGroup: {
            /** @description As the route calls it; empty: nobody is told */
            receiver: string;
            tenant: string;
            /** @description What they are grouped by, without the tenant */
            labels: {
                [key: string]: string;
            };
            total: number;
            counts: components["schemas"]["SeverityCounts"];
            /** @description Of total, those that tell nobody; counts has the rest */
            suppressed: number;
            /**
             * Format: date-time
             * @description Of the oldest
             */
            startsAt: string;
            /**
             * Format: date-time
             * @description When the newest began
             */
            newestAt: string;
            /** @description The first 50, the worst first */
            alerts: components["schemas"]["Alert"][];
        };
        AlertGroupList: {
            /** Format: date-time */
            asOf: string;
            /** @description Groups, also those left out */
            total: number;
            groups: components["schemas"]["AlertGroup"][];
        };
        LoudnessList: {
            hours: number;
            /** @description false: another Alertmanager notifies, and nobody counts */
            counted: boolean;
            /** @description Of all rules */
            total: number;
            rules: {
                tenant: string;
                rule: string;
                notifications: number;
                /** @description Attempts that failed, beside these */
                failed: number;
                receivers: string[];
            }[];
        };
        AlertState: {
            /** Format: date-time */
            asOf: string;
            firing: components["schemas"]["SeverityCounts"];
            suppressed: number;
            /** @description Sites that have a firing alert */
            sites: number;
        };
        Matcher: {
            /** @description A label, but tenant: that is the server's to set */
            name: string;
            value: string;
            /** @default false */
            isRegex: boolean;
            /** @default true */
            isEqual: boolean;
        };
        SilenceList: {
            silences: {
                id: string;
                /** @description Empty: an operator made it in Alertmanager itself, for no tenant alone */
                tenant: string;
                /** @description Empty, as createdBy and comment, where it is of no tenant and keeps alerts of the user's quiet, but the user may not read all tenants */
                matchers: components["schemas"]["Matcher"][];
                /** Format: date-time */
                startsAt: string;
                /** Format: date-time */
                endsAt: string;
                createdBy: string;
                comment: string;
                /** @enum {string} */
                state: "active" | "pending" | "expired";
                /** @description Made by Muster for a maintenance window */
                maintenance: boolean;
            }[];
        };
        MetricNames: {
            names: string[];
            /** @description There are others which fit */
            more: boolean;
        };
        MetricCondition: {
            /** @description The whole expression, laid out over lines */
            query: string;
            /** @description The expression without its comparisons with constants */
            value: string;
            /** @description All of them hold where the expression finds something */
            bounds: {
                /** @enum {string} */
                op: "==" | "!=" | ">" | "<" | ">=" | "<=";
                value: number;
            }[];
        };
        /** @description As documented by Prometheus. */
        PrometheusAnswer: {
            /** @enum {string} */
            status: "success" | "error";
            data?: {
                /** @enum {string} */
                resultType?: "matrix" | "vector" | "scalar" | "string";
                result?: unknown[];
            };
            errorType?: string;
            error?: string;
            warnings?: string[];
            infos?: string[];
        };
    };
    responses: {
        /** @description Any other error. */
        Problem: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The request is wrong; errors names the fields. */
        Invalid: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "type": "urn:muster:problem:invalid",
                 *       "title": "Bad Request",
                 *       "status": 400,
                 *       "detail": "limit: \"0\": want a whole number from 1 to 1000",
                 *       "errors": [
                 *         {
                 *           "field": "limit",
                 *           "detail": "\"0\": want a whole number from 1 to 1000"
                 *         }
                 *       ]
                 *     }
                 */
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description No token or session, or one that is no longer good. */
        Unauthenticated: {
            headers: {
                "WWW-Authenticate"?: string;
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "type": "urn:muster:problem:unauthenticated",
                 *       "title": "Unauthorized",
                 *       "status": 401,
                 *       "detail": "the session has expired; log in again"
                 *     }
                 */
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description RBAC doesn't allow it, or a page of another origin sent it. */
        Forbidden: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "type": "urn:muster:problem:forbidden",
                 *       "title": "Forbidden",
                 *       "status": 403,
                 *       "detail": "you may not read tenant \"acme\", or there is none"
                 *     }
                 */
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description There is no such thing. */
        NotFound: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "type": "urn:muster:problem:not-found",
                 *       "title": "Not Found",
                 *       "status": 404,
                 *       "detail": "there is no site \"paris-07\" in the tenants that you may read"
                 *     }
                 */
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description Several tenants have a site of this name (tenants lists them), or the site's state doesn't allow it. */
        Conflict: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "type": "urn:muster:problem:ambiguous-site",
                 *       "title": "Conflict",
                 *       "status": 409,
                 *       "detail": "several tenants have a site \"paris-07\": name one with the parameter tenant",
                 *       "tenants": [
                 *         "acme",
                 *         "globex"
                 *       ]
                 *     }
                 */
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The body is too large. */
        TooLarge: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The body is of another type than the one that is wanted. */
        MediaType: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description Too much at once; Retry-After says when to come back, in seconds. */
        TooMany: {
            headers: {
                "Retry-After"?: number;
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description A part behind the console doesn't answer; Retry-After says when to come back, in seconds. */
        Unavailable: {
            headers: {
                "Retry-After"?: number;
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "type": "urn:muster:problem:unavailable",
                 *       "title": "Service Unavailable",
                 *       "status": 503,
                 *       "detail": "the health engine can't be reached; it may be starting"
                 *     }
                 */
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
    };
    parameters: {
        /**
         * @description The tenant; left out: all that the user may read, or the one whose site has this name.
         * @example acme
         */
        tenant: components["schemas"]["TenantName"];
        /**
         * @description The tenant; may be left out by a user who reads only one.
         * @example acme
         */
        queryTenant: components["schemas"]["TenantName"];
        /** @example paris-07 */
        site: components["schemas"]["SiteName"];
        /**
         * @description The view's name: 1 to 60 printable characters without "/"
         * @example Flagships
         */
        view: string;
        /** @description Of all users of the tenant instead of one's own */
        sharedView: "true";
        /**
         * @description Name of the maintenance window, unique in the object.
         * @example updates
         */
        window: string;
        /**
         * @description The namespace as users type it: without the tenant.
         * @example shared
         */
        namespace: string;
        /**
         * @description Name of the VirtualKubernetes.
         * @example vk8s
         */
        vk8s: string;
        /**
         * @description KIND.GROUP; KIND alone for the core group.
         * @example Deployment.apps
         */
        kind: string;
        /** @example web */
        workload: string;
        /** @example web-1a2b3c4d */
        rollout: string;
        /**
         * @description Its name as the virtual Kubernetes shows it.
         * @example web-6f9c8d7b5-x2x9k
         */
        pod: string;
        /** @example all-eu */
        virtualSite: string;
        /**
         * @description Only alerts of members of this virtual site: NAMESPACE/NAME, or NAME for one in the namespace shared.
         * @example shared/all-eu
         */
        alertVirtualSite: string;
        /** @description Only alerts of this site. */
        alertSite: string;
        /** @description How many at most. */
        limit: number;
        /** @description nextCursor of the page before, unchanged. */
        cursor: string;
        /** @example avg by (region) (muster_site_health_score) */
        promQL: string;
        /** @description At most this many series; 0 or absent for all. */
        seriesLimit: number;
        /** @description A duration such as 10s. */
        timeout: string;
    };
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    getOpenAPI: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The OpenAPI 3 document of this API. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, never>;
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    getSession: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The user. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Session"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            default: components["responses"]["Problem"];
        };
    };
    login: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "token": "eyJhbGciOi…"
                 *     }
                 */
                "application/json": {
                    /** @description A token that the API server accepts */
                    token: string;
                };
            };
        };
        responses: {
            /** @description Logged in; the cookie is set. */
            204: {
                headers: {
                    "Set-Cookie"?: string;
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            429: components["responses"]["TooMany"];
            default: components["responses"]["Problem"];
        };
    };
    logout: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Logged out here; the browser's session with the identity provider ends at the address. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Logout"];
                };
            };
            /** @description Logged out. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            default: components["responses"]["Problem"];
        };
    };
    getRights: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The rights that pages ask for. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Rights"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    getLogin: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The ways. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Login"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    listTenants: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The tenants that the user may read, by name. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TenantList"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    listCost: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
                /** @description What the rows are; default site. */
                by?: components["schemas"]["CostBy"];
                /** @description By a column: the largest first; name: A to Z. Default series. */
                sort?: components["schemas"]["CostSort"];
                /**
                 * @description Of sites, only members of this virtual site, such as shared/all-eu.
                 * @example shared/all-eu
                 */
                virtualSite?: string;
                /** @description Only rows with this text in their name. */
                q?: string;
                /**
                 * @description How long regionals are waited for once one has answered. Those that have not by then are missing, and `late`: the same question without patience waits for them. Absent: 5 s, as long as a regional may take.
                 * @example 2s
                 */
                patience?: string;
                /** @description How many at most. */
                limit?: components["parameters"]["limit"];
                /** @description nextCursor of the page before, unchanged. */
                cursor?: components["parameters"]["cursor"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of rows, without what the regionals in missingRegions would have added. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CostPage"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    listCostNames: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
                /** @description Of this site; without it of the tenant. */
                site?: components["schemas"]["SiteName"];
                /**
                 * @description How long regionals are waited for once one has answered. Those that have not by then are missing, and `late`: the same question without patience waits for them. Absent: 5 s, as long as a regional may take.
                 * @example 2s
                 */
                patience?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Ten at most, the largest first, and which fields of collection policies let them through. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NamesPage"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    getKubernetes: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Its address. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        /** @example https://muster.example.com:6443 */
                        server: string;
                        /** @description PEM */
                        ca?: string;
                    };
                };
            };
            401: components["responses"]["Unauthenticated"];
            default: components["responses"]["Problem"];
        };
    };
    beginOIDC: {
        parameters: {
            query?: {
                /**
                 * @description Path of the page to go on with.
                 * @example /alerts
                 */
                return?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description To the identity provider, or back to the login page when it can't be reached. */
            303: {
                headers: {
                    Location?: string;
                    "Set-Cookie"?: string;
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Invalid"];
            404: components["responses"]["NotFound"];
            default: components["responses"]["Problem"];
        };
    };
    finishOIDC: {
        parameters: {
            query?: {
                code?: string;
                state?: string;
                error?: string;
                error_description?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description To the page, or to the login page. */
            303: {
                headers: {
                    Location?: string;
                    "Set-Cookie"?: string;
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Invalid"];
            404: components["responses"]["NotFound"];
            default: components["responses"]["Problem"];
        };
    };
    listSiteHealth: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
                /**
                 * @description Only members of this virtual site, such as shared/all-eu.
                 * @example shared/all-eu
                 */
                virtualSite?: string;
                /**
                 * @description Only sites of this region.
                 * @example eu-west
                 */
                region?: string;
                colour?: components["schemas"]["Colour"];
                phase?: components["schemas"]["Phase"];
                /** @description Only sites with this text in their name or address. */
                q?: string;
                /** @description score: worst first; name: A to Z. */
                sort?: "score" | "name";
                /** @description How many at most. */
                limit?: components["parameters"]["limit"];
                /** @description nextCursor of the page before, unchanged. */
                cursor?: components["parameters"]["cursor"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of sites. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SiteHealthList"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    getSiteHealth: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /** @example paris-07 */
                site: components["parameters"]["site"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The site. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SiteHealthDetail"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    explainSiteHealth: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
                /** @description true: the score that the policy in shadow gives. */
                shadow?: "true";
            };
            header?: never;
            path: {
                /** @example paris-07 */
                site: components["parameters"]["site"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The arithmetic. The lost points sum to 100 − score. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SiteHealthExplanation"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    listVirtualSiteHealth: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
                /** @description How many at most. */
                limit?: components["parameters"]["limit"];
                /** @description nextCursor of the page before, unchanged. */
                cursor?: components["parameters"]["cursor"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of virtual sites. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VirtualSiteHealthList"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    getVirtualSiteHealth: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
                /**
                 * @description The namespace as users type it, such as shared.
                 * @example shared
                 */
                namespace?: string;
            };
            header?: never;
            path: {
                /**
                 * @description The name without its namespace.
                 * @example all-eu
                 */
                virtualSite: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The virtual site. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VirtualSiteHealth"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    listHealthPolicies: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The policies. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HealthPolicies"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    getHealthPolicy: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /**
                 * @description Its name, or shipped for the one that applies where no other does.
                 * @example default
                 */
                policy: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The policy. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HealthPolicyDetail"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    tryHealthPolicy: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
                /**
                 * @description How long regionals are waited for once one has answered. Those that have not by then are missing, and `late`: the same question without patience waits for them. Absent: 20 s, as long as a trial may take.
                 * @example 2s
                 */
                patience?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description A HealthPolicy, as kubectl takes it. */
        requestBody: {
            content: {
                "application/json": {
                    /** @enum {string} */
                    kind: "HealthPolicy";
                    metadata: Record<string, never>;
                    spec: Record<string, never>;
                };
            };
        };
        responses: {
            /** @description What would change. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HealthTrial"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    replayHealthPolicy: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
                /**
                 * @description How far to look back, 10m to 168h.
                 * @example 24h
                 */
                since?: string;
                /** @description nextCursor of the page before, unchanged. */
                cursor?: components["parameters"]["cursor"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description A HealthPolicy, as kubectl takes it. */
        requestBody: {
            content: {
                "application/json": {
                    /** @enum {string} */
                    kind: "HealthPolicy";
                    metadata: Record<string, never>;
                    spec: Record<string, never>;
                };
            };
        };
        responses: {
            /** @description The history of some sites. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HealthReplay"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    streamHealth: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
                /** @description true: of a site that changed only that it did, and its colour and phase where they are others. For who asks for what it shows anyway. */
                brief?: "true";
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The events. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example id: 42
                     *     event: tick
                     *     data: {"asOf":"2026-01-31T12:00:00Z"}
                     */
                    "text/event-stream": string;
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            429: components["responses"]["TooMany"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    listSites: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
                /**
                 * @description Which sites; without it all but decommissioned ones.
                 * @example kind=store score<60
                 */
                q?: string;
                /**
                 * @description Up to three columns, separated by commas; a - before one puts its largest first. Unknown values come last. Default name.
                 * @example -alerts,score
                 */
                sort?: string;
                /**
                 * @description Separated by commas: fields, label.KEY, version.COMPONENT.
                 * @example score,label.tier,version.os
                 */
                columns?: string;
                /**
                 * @description A column; the answer has its values with counts.
                 * @example label.tier
                 */
                group?: string;
                /** @description Sites on a page; 0: counts and groups alone. Default 100, of csv all. */
                limit?: number;
                /** @description nextCursor of the page before, unchanged. */
                cursor?: components["parameters"]["cursor"];
                /** @description csv: a line a site, of the columns and no others. */
                format?: "json" | "csv";
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of sites. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SitePage"];
                    "text/csv": string;
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    listViews: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description By name. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SavedViewList"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    saveView: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
                /** @description Of all users of the tenant instead of one's own */
                shared?: components["parameters"]["sharedView"];
                /** @description Replace none, a view of that name is a conflict whose error is of the field `name` */
                new?: "true";
            };
            header?: never;
            path: {
                /**
                 * @description The view's name: 1 to 60 printable characters without "/"
                 * @example Flagships
                 */
                view: components["parameters"]["view"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "query": "kind=store score<60",
                 *       "sort": "-alerts",
                 *       "columns": [
                 *         "name",
                 *         "score",
                 *         "label.tier"
                 *       ],
                 *       "group": ""
                 *     }
                 */
                "application/json": {
                    query?: string;
                    sort?: string;
                    columns?: string[];
                    group?: string;
                };
            };
        };
        responses: {
            /** @description The view. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SavedView"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    deleteView: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
                /** @description Of all users of the tenant instead of one's own */
                shared?: components["parameters"]["sharedView"];
            };
            header?: never;
            path: {
                /**
                 * @description The view's name: 1 to 60 printable characters without "/"
                 * @example Flagships
                 */
                view: components["parameters"]["view"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is gone. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    changeSites: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "sites": [
                 *         {
                 *           "tenant": "acme",
                 *           "name": "paris-07"
                 *         }
                 *       ],
                 *       "labels": {
                 *         "tier": "gold",
                 *         "canary": null
                 *       }
                 *     }
                 */
                "application/json": {
                    sites: {
                        tenant: components["schemas"]["TenantName"];
                        name: components["schemas"]["SiteName"];
                    }[];
                    /** @description To set; null takes one away */
                    labels?: {
                        [key: string]: string | null;
                    };
                    maintenance?: {
                        reason: string;
                        /**
                         * Format: date-time
                         * @description Left out: until it is ended
                         */
                        until?: string | null;
                    };
                    endMaintenance?: boolean;
                    approve?: boolean;
                };
            };
        };
        responses: {
            /** @description How it went. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SitesChanged"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    listSiteFields: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The fields and keys. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SiteFields"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    getSiteMap: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
                /**
                 * @description Which sites, as for listSites.
                 * @example kind=store score<60
                 */
                q?: string;
                /**
                 * @description A column, as for listSites; without it there is none.
                 * @example memoryUsed
                 */
                by?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The sites. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SiteMap"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    getSiteDistributions: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
                /**
                 * @description Which sites, as for listSites.
                 * @example kind=store
                 */
                q?: string;
                /**
                 * @description Up to ten columns that are numbers, separated by commas. Default cpuUsed,memoryUsed,diskUsed.
                 * @example memoryUsed,measured.packet-loss
                 */
                of?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The distributions, in the order in which they were asked for. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SiteDistributions"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    listLinks: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
                /**
                 * @description Which sites, as for listSites.
                 * @example kind=store link.loss>1
                 */
                q?: string;
                /**
                 * @description As for listSites. Default connectivity,-link.loss,-link.roundTrip.
                 * @example -link.roundTrip
                 */
                sort?: string;
                /**
                 * @description The column that a regional's sites are grouped by: region, virtualSite, a label. Default region.
                 * @example virtualSite
                 */
                by?: string;
                /** @description Links on a page; 0: summaries alone. Default 50. */
                limit?: number;
                /** @description nextCursor of the page before, unchanged. */
                cursor?: components["parameters"]["cursor"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of links. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LinkPage"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    getSite: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /** @example paris-07 */
                site: components["parameters"]["site"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The site. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Site"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    setMaintenance: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /** @example paris-07 */
                site: components["parameters"]["site"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "reason": "new router, ticket 4711",
                 *       "until": "2026-01-31T18:00:00Z"
                 *     }
                 */
                "application/json": {
                    reason: string;
                    /**
                     * Format: date-time
                     * @description In the future; absent: until it is deleted.
                     */
                    until?: string | null;
                };
            };
        };
        responses: {
            /** @description The site. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Site"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    endMaintenance: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /** @example paris-07 */
                site: components["parameters"]["site"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The site is not in maintenance. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    askReset: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /** @example paris-07 */
                site: components["parameters"]["site"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "wait": "1h"
                 *     }
                 */
                "application/json": {
                    /** @description How long the request waits for a site that is not connected, 1m to 720h, as Go writes durations */
                    wait: string;
                    /** @description Samples that the site has not sent yet are dropped; else it sends them first, for at most 15 minutes */
                    discardSpool?: boolean;
                    /** @description When it is back it waits to be approved */
                    approveAgain?: boolean;
                };
            };
        };
        responses: {
            /** @description The site. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Site"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    cancelReset: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /** @example paris-07 */
                site: components["parameters"]["site"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is taken back. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    planSiteMaintenance: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /** @example paris-07 */
                site: components["parameters"]["site"];
                /**
                 * @description Name of the maintenance window, unique in the object.
                 * @example updates
                 */
                window: components["parameters"]["window"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "reason": "monthly updates",
                 *       "schedule": "0 2 * * SUN",
                 *       "timeZone": "Europe/Berlin",
                 *       "duration": "2h"
                 *     }
                 */
                "application/json": {
                    reason: string;
                    /**
                     * Format: date-time
                     * @description Begin of a window that comes once; either this or schedule.
                     */
                    start?: string | null;
                    /** @description Begin of a window that comes again and again, in cron's five fields. */
                    schedule?: string;
                    /** @description Of the schedule, such as Europe/Berlin; UTC by default. */
                    timeZone?: string;
                    /** @description 1m to 168h. */
                    duration: string;
                };
            };
        };
        responses: {
            /** @description The site. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Site"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    dropSiteMaintenance: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /** @example paris-07 */
                site: components["parameters"]["site"];
                /**
                 * @description Name of the maintenance window, unique in the object.
                 * @example updates
                 */
                window: components["parameters"]["window"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The window is gone. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    listVirtualSiteMaintenance: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /**
                 * @description The namespace as users type it: without the tenant.
                 * @example shared
                 */
                namespace: components["parameters"]["namespace"];
                /** @example all-eu */
                virtualSite: components["parameters"]["virtualSite"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The windows. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VirtualSiteMaintenance"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    planVirtualSiteMaintenance: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /**
                 * @description The namespace as users type it: without the tenant.
                 * @example shared
                 */
                namespace: components["parameters"]["namespace"];
                /** @example all-eu */
                virtualSite: components["parameters"]["virtualSite"];
                /**
                 * @description Name of the maintenance window, unique in the object.
                 * @example updates
                 */
                window: components["parameters"]["window"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "reason": "monthly updates",
                 *       "schedule": "0 2 * * SUN",
                 *       "timeZone": "Europe/Berlin",
                 *       "duration": "2h"
                 *     }
                 */
                "application/json": {
                    reason: string;
                    /**
                     * Format: date-time
                     * @description Begin of a window that comes once; either this or schedule.
                     */
                    start?: string | null;
                    /** @description Begin of a window that comes again and again, in cron's five fields. */
                    schedule?: string;
                    /** @description Of the schedule, such as Europe/Berlin; UTC by default. */
                    timeZone?: string;
                    /** @description 1m to 168h. */
                    duration: string;
                };
            };
        };
        responses: {
            /** @description The virtual site's windows. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VirtualSiteMaintenance"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    dropVirtualSiteMaintenance: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /**
                 * @description The namespace as users type it: without the tenant.
                 * @example shared
                 */
                namespace: components["parameters"]["namespace"];
                /** @example all-eu */
                virtualSite: components["parameters"]["virtualSite"];
                /**
                 * @description Name of the maintenance window, unique in the object.
                 * @example updates
                 */
                window: components["parameters"]["window"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The window is gone. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    listSiteWorkloads: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /** @example paris-07 */
                site: components["parameters"]["site"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Workloads that the site holds or should, by virtual Kubernetes; each has this site alone. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SiteWorkloads"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    listVirtualHosts: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Those that the user may read, by namespace and name. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VirtualHostList"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    listVirtualKubernetes: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Those that the user may read, by namespace and name. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VirtualKubernetesList"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    getVirtualKubernetes: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /**
                 * @description The namespace as users type it: without the tenant.
                 * @example shared
                 */
                namespace: components["parameters"]["namespace"];
                /**
                 * @description Name of the VirtualKubernetes.
                 * @example vk8s
                 */
                vk8s: components["parameters"]["vk8s"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The virtual Kubernetes. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VirtualKubernetesDetail"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    getVirtualKubeconfig: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /**
                 * @description The namespace as users type it: without the tenant.
                 * @example shared
                 */
                namespace: components["parameters"]["namespace"];
                /**
                 * @description Name of the VirtualKubernetes.
                 * @example vk8s
                 */
                vk8s: components["parameters"]["vk8s"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The kubeconfig. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/yaml": Record<string, never>;
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    applyObjects: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /**
                 * @description The namespace as users type it: without the tenant.
                 * @example shared
                 */
                namespace: components["parameters"]["namespace"];
                /**
                 * @description Name of the VirtualKubernetes.
                 * @example vk8s
                 */
                vk8s: components["parameters"]["vk8s"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {currency: EUR}\n",
                 *       "virtualSite": "shared/all-eu",
                 *       "dryRun": true
                 *     }
                 */
                "application/json": {
                    /** @description One or more objects, apart by --- */
                    yaml: string;
                    /**
                     * @description NAMESPACE/NAME: where all of them go. Left out: where each says itself, or the default virtual site.
                     * @example shared/all-eu
                     */
                    virtualSite?: string;
                    /** @description Only ask whether it would be applied. */
                    dryRun?: boolean;
                    /** @description Take over fields that somebody else manages. */
                    force?: boolean;
                };
            };
        };
        responses: {
            /** @description What became of each object, in their order. With an object that is refused, none is applied. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApplyResult"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    listWorkloads: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /**
                 * @description The namespace as users type it: without the tenant.
                 * @example shared
                 */
                namespace: components["parameters"]["namespace"];
                /**
                 * @description Name of the VirtualKubernetes.
                 * @example vk8s
                 */
                vk8s: components["parameters"]["vk8s"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description All of them by kind and name, without their sites. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WorkloadList"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    getWorkload: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /**
                 * @description The namespace as users type it: without the tenant.
                 * @example shared
                 */
                namespace: components["parameters"]["namespace"];
                /**
                 * @description Name of the VirtualKubernetes.
                 * @example vk8s
                 */
                vk8s: components["parameters"]["vk8s"];
                /**
                 * @description KIND.GROUP; KIND alone for the core group.
                 * @example Deployment.apps
                 */
                kind: components["parameters"]["kind"];
                /** @example web */
                workload: components["parameters"]["workload"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The workload. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WorkloadDetail"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    getWorkloadObject: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /**
                 * @description The namespace as users type it: without the tenant.
                 * @example shared
                 */
                namespace: components["parameters"]["namespace"];
                /**
                 * @description Name of the VirtualKubernetes.
                 * @example vk8s
                 */
                vk8s: components["parameters"]["vk8s"];
                /**
                 * @description KIND.GROUP; KIND alone for the core group.
                 * @example Deployment.apps
                 */
                kind: components["parameters"]["kind"];
                /** @example web */
                workload: components["parameters"]["workload"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The object, without status and without what the API server keeps for itself. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WorkloadObject"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    listWorkloadPods: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
                /** @description Only those on this site. */
                site?: components["schemas"]["SiteName"];
                /** @description How many at most. */
                limit?: components["parameters"]["limit"];
                /** @description nextCursor of the page before, unchanged. */
                cursor?: string;
            };
            header?: never;
            path: {
                /**
                 * @description The namespace as users type it: without the tenant.
                 * @example shared
                 */
                namespace: components["parameters"]["namespace"];
                /**
                 * @description Name of the VirtualKubernetes.
                 * @example vk8s
                 */
                vk8s: components["parameters"]["vk8s"];
                /**
                 * @description KIND.GROUP; KIND alone for the core group.
                 * @example Deployment.apps
                 */
                kind: components["parameters"]["kind"];
                /** @example web */
                workload: components["parameters"]["workload"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of pods of all sites. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PodList"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    deletePod: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /**
                 * @description The namespace as users type it: without the tenant.
                 * @example shared
                 */
                namespace: components["parameters"]["namespace"];
                /**
                 * @description Name of the VirtualKubernetes.
                 * @example vk8s
                 */
                vk8s: components["parameters"]["vk8s"];
                /**
                 * @description Its name as the virtual Kubernetes shows it.
                 * @example web-6f9c8d7b5-x2x9k
                 */
                pod: components["parameters"]["pod"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The site deletes it as soon as it hears of it; what owns the pod makes another. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    followPodLog: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
                /** @description Which container; may be left out where there is one. */
                container?: string;
                /** @description true: of the container's last run, which has ended. */
                previous?: "true";
                /** @description From its end. */
                lines?: number;
            };
            header?: {
                /** @description Goes on after this time. */
                "Last-Event-ID"?: string;
            };
            path: {
                /**
                 * @description The namespace as users type it: without the tenant.
                 * @example shared
                 */
                namespace: components["parameters"]["namespace"];
                /**
                 * @description Name of the VirtualKubernetes.
                 * @example vk8s
                 */
                vk8s: components["parameters"]["vk8s"];
                /**
                 * @description Its name as the virtual Kubernetes shows it.
                 * @example web-6f9c8d7b5-x2x9k
                 */
                pod: components["parameters"]["pod"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Events `lines` with `{lines: [{time, text}]}`, oldest first, and `end` with `{}` when the container has ended. The id of an event is the newest time. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": string;
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            429: components["responses"]["TooMany"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    listRollouts: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
                /**
                 * @description Only of this namespace, as users type it.
                 * @example shop
                 */
                namespace?: string;
                /** @description active: under way; ended: not any more. Default all. */
                state?: "active" | "ended" | "all";
                /** @description Only in these phases; repeated or separated by commas. */
                phase?: components["schemas"]["RolloutPhase"][];
                /**
                 * @description Only those that move this object: KIND/NAME or KIND.GROUP/NAME.
                 * @example Deployment/web
                 */
                object?: string;
                /** @description Only with this text in their own or an object's name. */
                q?: string;
                /** @description How many at most. */
                limit?: components["parameters"]["limit"];
                /** @description nextCursor of the page before, unchanged. */
                cursor?: components["parameters"]["cursor"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of rollouts, newest first. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RolloutList"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    startRollout: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "namespace": "shop",
                 *       "spec": {
                 *         "changes": [
                 *           {
                 *             "apiVersion": "apps/v1",
                 *             "kind": "Deployment",
                 *             "name": "web",
                 *             "images": {
                 *               "web": "shop/web:2"
                 *             }
                 *           }
                 *         ],
                 *         "virtualSites": [
                 *           "shared/all-eu"
                 *         ],
                 *         "soak": "15m"
                 *       }
                 *     }
                 */
                "application/json": {
                    /**
                     * @description Of the objects, as users type it
                     * @example shop
                     */
                    namespace: string;
                    /** @description Left out: the first object's name and some letters */
                    name?: string;
                    spec: components["schemas"]["RolloutSpec"];
                    dryRun?: boolean;
                };
            };
        };
        responses: {
            /** @description With dryRun: what would be made. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RolloutDetail"];
                };
            };
            /** @description Made. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RolloutDetail"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    streamRollouts: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
                /**
                 * @description Only of this namespace, as users type it.
                 * @example shop
                 */
                namespace?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The events. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example event: rollout
                     *     data: {"name":"web-1a2b3c4d"}
                     */
                    "text/event-stream": string;
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            429: components["responses"]["TooMany"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    getRolloutByName: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /** @example web-1a2b3c4d */
                rollout: components["parameters"]["rollout"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The rollout; 409 if several namespaces have one of this name. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RolloutDetail"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    getRolloutGatesByName: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /** @example web-1a2b3c4d */
                rollout: components["parameters"]["rollout"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The gates of its current wave; 409 if several namespaces have one of this name. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RolloutGates"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    getRollout: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /**
                 * @description The namespace as users type it: without the tenant.
                 * @example shared
                 */
                namespace: components["parameters"]["namespace"];
                /** @example web-1a2b3c4d */
                rollout: components["parameters"]["rollout"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The rollout. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RolloutDetail"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    deleteRollout: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /**
                 * @description The namespace as users type it: without the tenant.
                 * @example shared
                 */
                namespace: components["parameters"]["namespace"];
                /** @example web-1a2b3c4d */
                rollout: components["parameters"]["rollout"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Deleted. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    listRolloutSites: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
                /** @description Only sites at these steps; repeated or separated by commas. */
                step?: components["schemas"]["RolloutStep"][];
                /** @description Only sites of this wave, from 1. */
                wave?: number;
                /** @description Only sites with this text in their name. */
                q?: string;
                /** @description How many at most. */
                limit?: number;
                /** @description nextCursor of the page before, unchanged. */
                cursor?: components["parameters"]["cursor"];
            };
            header?: never;
            path: {
                /**
                 * @description The namespace as users type it: without the tenant.
                 * @example shared
                 */
                namespace: components["parameters"]["namespace"];
                /** @example web-1a2b3c4d */
                rollout: components["parameters"]["rollout"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of sites, in the order of the waves. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RolloutSiteList"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    getRolloutGates: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /**
                 * @description The namespace as users type it: without the tenant.
                 * @example shared
                 */
                namespace: components["parameters"]["namespace"];
                /** @example web-1a2b3c4d */
                rollout: components["parameters"]["rollout"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The gates of its current wave, as last read. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RolloutGates"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    streamRollout: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /**
                 * @description The namespace as users type it: without the tenant.
                 * @example shared
                 */
                namespace: components["parameters"]["namespace"];
                /** @example web-1a2b3c4d */
                rollout: components["parameters"]["rollout"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The events. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example event: rollout
                     *     data: {"name":"web-1a2b3c4d"}
                     */
                    "text/event-stream": string;
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            429: components["responses"]["TooMany"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    pauseRollout: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /**
                 * @description The namespace as users type it: without the tenant.
                 * @example shared
                 */
                namespace: components["parameters"]["namespace"];
                /** @example web-1a2b3c4d */
                rollout: components["parameters"]["rollout"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The rollout as it is now. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RolloutDetail"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    resumeRollout: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /**
                 * @description The namespace as users type it: without the tenant.
                 * @example shared
                 */
                namespace: components["parameters"]["namespace"];
                /** @example web-1a2b3c4d */
                rollout: components["parameters"]["rollout"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The rollout as it is now. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RolloutDetail"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    promoteRollout: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /**
                 * @description The namespace as users type it: without the tenant.
                 * @example shared
                 */
                namespace: components["parameters"]["namespace"];
                /** @example web-1a2b3c4d */
                rollout: components["parameters"]["rollout"];
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": {
                    /** @description Up to this one, from 1; left out: the current one */
                    wave?: number;
                };
            };
        };
        responses: {
            /** @description The rollout as it is now. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RolloutDetail"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    abortRollout: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /**
                 * @description The namespace as users type it: without the tenant.
                 * @example shared
                 */
                namespace: components["parameters"]["namespace"];
                /** @example web-1a2b3c4d */
                rollout: components["parameters"]["rollout"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The rollout as it is now. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RolloutDetail"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    retryRollout: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /**
                 * @description The namespace as users type it: without the tenant.
                 * @example shared
                 */
                namespace: components["parameters"]["namespace"];
                /** @example web-1a2b3c4d */
                rollout: components["parameters"]["rollout"];
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": {
                    /** @description Left out: all that failed, at most 1000 */
                    sites?: components["schemas"]["SiteName"][];
                };
            };
        };
        responses: {
            /** @description The rollout as it is now. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RolloutDetail"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    evaluateGates: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "virtualSite": "shared/canary",
                 *       "peers": "shared/all-eu",
                 *       "since": "10m"
                 *     }
                 */
                "application/json": {
                    /**
                     * @description Where the check is made; left out: the virtual site's
                     * @example shop
                     */
                    namespace?: string;
                    /**
                     * @description NAMESPACE/NAME, or NAME of one in the namespace: whose sites have the change
                     * @example shared/canary
                     */
                    virtualSite?: string;
                    /** @description Those that have it, in the place of a virtual site */
                    sites?: components["schemas"]["SiteName"][];
                    /**
                     * @description The virtual site with whose other sites they are compared
                     * @example shared/all-eu
                     */
                    peers?: string;
                    /**
                     * @description When they got it: a time (RFC 3339), or how long ago
                     * @example 10m
                     */
                    since?: string;
                    /** @description Left out: alerts of severity critical, and no dimension 10 points worse than before and than at the peers */
                    gates?: components["schemas"]["RolloutGate"][];
                };
            };
        };
        responses: {
            /** @description The verdict. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["GateCheck"];
                };
            };
            /** @description There is none yet. */
            202: {
                headers: {
                    Location?: string;
                    "Retry-After"?: number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["GateCheck"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    getGateCheck: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /**
                 * @description The namespace as users type it: without the tenant.
                 * @example shared
                 */
                namespace: components["parameters"]["namespace"];
                /** @example api-7x2kq */
                check: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The check. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["GateCheck"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    listRegistrations: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
                /** @description How many at most. */
                limit?: components["parameters"]["limit"];
                /** @description nextCursor of the page before, unchanged. */
                cursor?: components["parameters"]["cursor"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of registrations. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RegistrationList"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    approveRegistration: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /** @example paris-07 */
                site: components["parameters"]["site"];
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                /**
                 * @example {
                 *       "labels": {
                 *         "region": "eu-west"
                 *       },
                 *       "place": {
                 *         "latitude": 48.8566,
                 *         "longitude": 2.3522,
                 *         "address": "Paris"
                 *       }
                 *     }
                 */
                "application/json": {
                    /** @description Kubernetes labels to add; none under muster.dev/. */
                    labels?: {
                        [key: string]: string;
                    };
                    place?: {
                        latitude: number;
                        longitude: number;
                        address?: string;
                    };
                    /** @description Approve only if the machine registered with this key, the one that was looked at. */
                    publicKey?: string;
                };
            };
        };
        responses: {
            /** @description The approved site. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Site"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    rejectRegistration: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /** @example paris-07 */
                site: components["parameters"]["site"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Rejected. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    searchLogs: {
        parameters: {
            query?: {
                /**
                 * @description What to look for: words in the message, phrases in quotes, field:value, AND, OR, NOT and brackets.
                 * @example severity:error AND "out of memory"
                 */
                query?: string;
                /**
                 * @description The tenant; may be left out by a user who reads only one.
                 * @example acme
                 */
                tenant?: components["parameters"]["queryTenant"];
                /**
                 * @description From this time on: RFC 3339, a day, Unix seconds, or such as now-1h.
                 * @example now-1h
                 */
                from?: string;
                /** @description Before this time, in the same forms. */
                to?: string;
                /**
                 * @description Only members of this virtual site: NAMESPACE/NAME, or NAME for one in the namespace shared.
                 * @example shared/all-eu
                 */
                virtualSite?: string;
                /** @description Only these sites; repeated or separated by commas. */
                site?: string[];
                /** @description Only these Kubernetes namespaces on the sites. */
                namespace?: string[];
                /** @description Only these severities, such as error or warning. */
                severity?: string[];
                /** @description How many at most. */
                limit?: components["parameters"]["limit"];
                /** @description nextCursor of the page before, unchanged, with the same other parameters. */
                cursor?: string;
                /**
                 * @description How long regions are waited for once one has answered. Those that have not by then are missing, and `late`: the same search without patience waits for them. Absent: 10 s, as long as a region may take.
                 * @example 2s
                 */
                patience?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of log records. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LogPage"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            429: components["responses"]["TooMany"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    tailLogs: {
        parameters: {
            query?: {
                /**
                 * @description What to look for: words in the message, phrases in quotes, field:value, AND, OR, NOT and brackets.
                 * @example severity:error AND "out of memory"
                 */
                query?: string;
                /**
                 * @description The tenant; may be left out by a user who reads only one.
                 * @example acme
                 */
                tenant?: components["parameters"]["queryTenant"];
                /**
                 * @description From this time on: RFC 3339, a day, Unix seconds, or such as now-1h.
                 * @example now-1h
                 */
                from?: string;
                /** @description Before this time, in the same forms. */
                to?: string;
                /**
                 * @description Only members of this virtual site: NAMESPACE/NAME, or NAME for one in the namespace shared.
                 * @example shared/all-eu
                 */
                virtualSite?: string;
                /** @description Only these sites; repeated or separated by commas. */
                site?: string[];
                /** @description Only these Kubernetes namespaces on the sites. */
                namespace?: string[];
                /** @description Only these severities, such as error or warning. */
                severity?: string[];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The events. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example event: missing
                     *     id: e30
                     *     data: {"missingRegions":[]}
                     */
                    "text/event-stream": string;
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            429: components["responses"]["TooMany"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    getTimeline: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
                /** @description Only events at these sites, and edits of the policies that select them. May be repeated. */
                site?: string[];
                /** @description Only events at sites that were members of one of these at the time; NAMESPACE/NAME, or NAME of a shared one. May be repeated. */
                virtualSite?: string[];
                /** @description Only events of these kinds. May be repeated. */
                kind?: components["schemas"]["TimelineKind"][];
                /** @description The first moment: RFC 3339 or Unix seconds. */
                from?: string;
                /** @description The moment after the last: RFC 3339 or Unix seconds. */
                to?: string;
                /** @description How many at most. */
                limit?: components["parameters"]["limit"];
                /** @description nextCursor of the page before, unchanged. */
                cursor?: components["parameters"]["cursor"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of events. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TimelinePage"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    listAlerts: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
                /**
                 * @description Only alerts of members of this virtual site: NAMESPACE/NAME, or NAME for one in the namespace shared.
                 * @example shared/all-eu
                 */
                virtualSite?: components["parameters"]["alertVirtualSite"];
                /** @description Only alerts of this site. */
                site?: components["parameters"]["alertSite"];
                severity?: components["schemas"]["Severity"];
                /** @description suppressed: silenced or inhibited. */
                state?: "active" | "suppressed" | "all";
                /** @description Only alerts with this text in a label or annotation. */
                q?: string;
                /** @description How many at most. */
                limit?: components["parameters"]["limit"];
                /** @description nextCursor of the page before, unchanged. */
                cursor?: components["parameters"]["cursor"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of alerts. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AlertList"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    listAlertGroups: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
                /**
                 * @description Only alerts of members of this virtual site: NAMESPACE/NAME, or NAME for one in the namespace shared.
                 * @example shared/all-eu
                 */
                virtualSite?: components["parameters"]["alertVirtualSite"];
                /** @description Only alerts of this site. */
                site?: components["parameters"]["alertSite"];
                severity?: "critical" | "warning" | "info";
                /** @description suppressed are silenced or inhibited ones. */
                state?: "active" | "suppressed" | "all";
                /** @description Text in a label's or annotation's value. */
                q?: string;
                sort?: "severity" | "count" | "newest";
                /** @description How many at most. */
                limit?: components["parameters"]["limit"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The groups. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AlertGroupList"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    countNotifications: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
                /** @description How many at most. */
                limit?: components["parameters"]["limit"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The counts. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LoudnessList"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    getAlertState: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
                /**
                 * @description Only alerts of members of this virtual site: NAMESPACE/NAME, or NAME for one in the namespace shared.
                 * @example shared/all-eu
                 */
                virtualSite?: components["parameters"]["alertVirtualSite"];
                /** @description Only alerts of this site. */
                site?: components["parameters"]["alertSite"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The figures. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AlertState"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    getAlert: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /** @example 8a1f6b7c2d3e4f50 */
                fingerprint: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The alert. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AlertDetail"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    makeAlertRules: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "name": "site-memory-high",
                 *       "spec": {
                 *         "groups": [
                 *           {
                 *             "name": "load",
                 *             "rules": [
                 *               {
                 *                 "alert": "SiteMemoryHigh",
                 *                 "expr": "100 * (1 - min by (site) (node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes)) > 90",
                 *                 "for": "15m",
                 *                 "labels": {
                 *                   "severity": "warning"
                 *                 }
                 *               }
                 *             ]
                 *           }
                 *         ]
                 *       }
                 *     }
                 */
                "application/json": {
                    name: string;
                    /** @description The spec of AlertRules: groups in Prometheus' own format */
                    spec: {
                        [key: string]: unknown;
                    };
                    dryRun?: boolean;
                };
            };
        };
        responses: {
            /** @description With dryRun: what would be made. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AlertRules"];
                };
            };
            /** @description Made. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AlertRules"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    getAlertRules: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /**
                 * @description Name of the AlertRules.
                 * @example site-memory-high
                 */
                rules: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The object. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AlertRules"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    getRunbook: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @example SiteDown */
                alert: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The runbook. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Runbook"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            404: components["responses"]["NotFound"];
            default: components["responses"]["Problem"];
        };
    };
    listSilences: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
                state?: "active" | "pending" | "expired" | "all";
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The silences. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SilenceList"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    silence: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; may be left out by a user who reads only one.
                 * @example acme
                 */
                tenant?: components["parameters"]["queryTenant"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "matchers": [
                 *         {
                 *           "name": "site",
                 *           "value": "paris-07",
                 *           "isRegex": false,
                 *           "isEqual": true
                 *         }
                 *       ],
                 *       "duration": "2h",
                 *       "comment": "changing the disk"
                 *     }
                 */
                "application/json": {
                    matchers: components["schemas"]["Matcher"][];
                    /** Format: date-time */
                    startsAt?: string;
                    /** Format: date-time */
                    endsAt?: string;
                    /** @description Such as 30m, 2h or 1d, in place of endsAt. */
                    duration?: string;
                    comment: string;
                };
            };
        };
        responses: {
            /** @description The silence's id. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "id": "5f1d8a52-6b1f-4c7e-9d55-0d4b8c1f7e2a"
                     *     }
                     */
                    "application/json": {
                        id: string;
                    };
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    endSilence: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; left out: all that the user may read, or the one whose site has this name.
                 * @example acme
                 */
                tenant?: components["parameters"]["tenant"];
            };
            header?: never;
            path: {
                /** @example 5f1d8a52-6b1f-4c7e-9d55-0d4b8c1f7e2a */
                silence: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It has ended. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            503: components["responses"]["Unavailable"];
            default: components["responses"]["Problem"];
        };
    };
    query: {
        parameters: {
            query: {
                /** @example avg by (region) (muster_site_health_score) */
                query: components["parameters"]["promQL"];
                /**
                 * @description The tenant; may be left out by a user who reads only one.
                 * @example acme
                 */
                tenant?: components["parameters"]["queryTenant"];
                /**
                 * @description RFC 3339 or Unix seconds; now by default.
                 * @example 2026-01-31T12:00:00Z
                 */
                time?: string;
                /** @description A duration such as 10s. */
                timeout?: components["parameters"]["timeout"];
                /** @description At most this many series; 0 or absent for all. */
                limit?: components["parameters"]["seriesLimit"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The answer of the Prometheus HTTP API. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PrometheusAnswer"];
                };
            };
            /** @description A parameter is wrong (a problem), or PromQL refused the expression (an answer of the Prometheus HTTP API). */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                    "application/json": components["schemas"]["PrometheusAnswer"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            /** @description The expression can't be evaluated. */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PrometheusAnswer"];
                };
            };
            /** @description The metric store can't answer now. */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                    "application/json": components["schemas"]["PrometheusAnswer"];
                };
            };
            /** @description Any other error; 502 and 504: the metric store can't be reached, or took too long. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                    "application/json": components["schemas"]["PrometheusAnswer"];
                };
            };
        };
    };
    queryByForm: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/x-www-form-urlencoded": {
                    query: string;
                    tenant?: string;
                    time?: string;
                    timeout?: string;
                    limit?: number;
                };
            };
        };
        responses: {
            /** @description The answer of the Prometheus HTTP API. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PrometheusAnswer"];
                };
            };
            /** @description A parameter is wrong (a problem), or PromQL refused the expression (an answer of the Prometheus HTTP API). */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                    "application/json": components["schemas"]["PrometheusAnswer"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            /** @description The expression can't be evaluated. */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PrometheusAnswer"];
                };
            };
            /** @description The metric store can't answer now. */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                    "application/json": components["schemas"]["PrometheusAnswer"];
                };
            };
            /** @description Any other error; 502 and 504: the metric store can't be reached, or took too long. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                    "application/json": components["schemas"]["PrometheusAnswer"];
                };
            };
        };
    };
    queryRange: {
        parameters: {
            query: {
                /** @example avg by (region) (muster_site_health_score) */
                query: components["parameters"]["promQL"];
                /**
                 * @description The tenant; may be left out by a user who reads only one.
                 * @example acme
                 */
                tenant?: components["parameters"]["queryTenant"];
                /**
                 * @description RFC 3339 or Unix seconds.
                 * @example 2026-01-31T00:00:00Z
                 */
                start: string;
                /**
                 * @description RFC 3339 or Unix seconds.
                 * @example 2026-01-31T12:00:00Z
                 */
                end: string;
                /**
                 * @description A duration such as 1m, or seconds. At most 11,000 steps.
                 * @example 1m
                 */
                step: string;
                /** @description A duration such as 10s. */
                timeout?: components["parameters"]["timeout"];
                /** @description At most this many series; 0 or absent for all. */
                limit?: components["parameters"]["seriesLimit"];
                /** @description What each value tells of the step that ends with it, in place of what the expression is at that moment: its least or its largest value, or coverage: in which share of the time it had one. Of a plain selector every sample counts; all else, and coverage, is looked at 240 times in a step, and each 15 s at most. Names of metrics are left out. An expression of which that would cost too much is refused. */
                within?: "least" | "largest" | "coverage";
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The answer of the Prometheus HTTP API. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PrometheusAnswer"];
                };
            };
            /** @description A parameter is wrong (a problem), or PromQL refused the expression (an answer of the Prometheus HTTP API). */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                    "application/json": components["schemas"]["PrometheusAnswer"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            /** @description The expression can't be evaluated. */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PrometheusAnswer"];
                };
            };
            /** @description The metric store can't answer now. */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                    "application/json": components["schemas"]["PrometheusAnswer"];
                };
            };
            /** @description Any other error; 502 and 504: the metric store can't be reached, or took too long. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                    "application/json": components["schemas"]["PrometheusAnswer"];
                };
            };
        };
    };
    queryRangeByForm: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/x-www-form-urlencoded": {
                    query: string;
                    tenant?: string;
                    start: string;
                    end: string;
                    step: string;
                    timeout?: string;
                    limit?: number;
                    /**
                     * @description As for queryRange.
                     * @enum {string}
                     */
                    within?: "least" | "largest" | "coverage";
                };
            };
        };
        responses: {
            /** @description The answer of the Prometheus HTTP API. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PrometheusAnswer"];
                };
            };
            /** @description A parameter is wrong (a problem), or PromQL refused the expression (an answer of the Prometheus HTTP API). */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                    "application/json": components["schemas"]["PrometheusAnswer"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            /** @description The expression can't be evaluated. */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PrometheusAnswer"];
                };
            };
            /** @description The metric store can't answer now. */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                    "application/json": components["schemas"]["PrometheusAnswer"];
                };
            };
            /** @description Any other error; 502 and 504: the metric store can't be reached, or took too long. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                    "application/json": components["schemas"]["PrometheusAnswer"];
                };
            };
        };
    };
    metricNames: {
        parameters: {
            query?: {
                /**
                 * @description The tenant; may be left out by a user who reads only one.
                 * @example acme
                 */
                tenant?: components["parameters"]["queryTenant"];
                /**
                 * @description Whose values are wanted.
                 * @example __name__
                 */
                label?: string;
                /**
                 * @description A selector that the series must fit.
                 * @example {job="kubelet"}
                 */
                match?: string;
                /**
                 * @description Only names with this in them, whatever the case; those that begin with it come first.
                 * @example node_cpu
                 */
                q?: string;
                /** @description RFC 3339 or Unix seconds; an hour before the end by default. */
                start?: string;
                /** @description RFC 3339 or Unix seconds; now by default. */
                end?: string;
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The names, sorted. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["MetricNames"];
                };
            };
            /** @description A parameter is wrong (a problem), or the selector is none (an answer of the Prometheus HTTP API). */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                    "application/json": components["schemas"]["PrometheusAnswer"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            /** @description The metric store can't answer now. */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                    "application/json": components["schemas"]["PrometheusAnswer"];
                };
            };
            /** @description Any other error; 502 and 504: the metric store can't be reached, or took too long. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                    "application/json": components["schemas"]["PrometheusAnswer"];
                };
            };
        };
    };
    metricCondition: {
        parameters: {
            query: {
                /** @example avg by (region) (muster_site_health_score) */
                query: components["parameters"]["promQL"];
                /**
                 * @description Every selector of the value is narrowed to this site.
                 * @example paris-07
                 */
                site?: components["schemas"]["SiteName"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Its parts. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["MetricCondition"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            default: components["responses"]["Problem"];
        };
    };
}
