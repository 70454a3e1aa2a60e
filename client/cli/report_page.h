// The fixed text of the report page: style and script. The script draws what the embedded JSON
// says.
#ifndef KVTRIAGE_CLIENT_CLI_REPORT_PAGE_H_
#define KVTRIAGE_CLIENT_CLI_REPORT_PAGE_H_

namespace kvtriage::cli {

extern const char kReportStyle[];
extern const char kReportScript[];

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_REPORT_PAGE_H_
