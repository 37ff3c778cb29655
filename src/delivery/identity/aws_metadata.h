/* aws_metadata.h: the services that give AWS credentials to a workload. Each function waits, on a background thread,
 * and throws NotGranted. */
#pragma once

#include <string>

#include "delivery/identity/aws_signature.h"
#include "delivery/identity/renewed.h"

namespace outbox::aws {

/* A Kubernetes service account's token (EKS), exchanged at STS by AssumeRoleWithWebIdentity. */
struct WebIdentity {
  std::string token_file, role_arn, session_name, region;
  std::string endpoint; /* of STS; empty: that of the region */
};
Grant<Credentials> of_web_identity(const WebIdentity &identity, const Stop &stop);

/* ECS, and EKS Pod Identity. */
struct Container {
  std::string url;
  std::string token, token_file; /* of the header Authorization; the file is read each time */
};
Grant<Credentials> of_container(const Container &container, const Stop &stop);

/* EC2, by IMDSv2 only: version 1 needs no token, so a server could be tricked into it. */
Grant<Credentials> of_instance(const std::string &endpoint, const Stop &stop);

}  // namespace outbox::aws
