# Fit one job of tables_beside_r.py with lme4 or mgcv, on the rows that it has written.
#
#   Rscript tables.R JOB FOLDER
#
# Reads train.csv and, of mgcv, test.csv (column "target"); writes figures.csv (a name and a number
# a line) and mean.csv (of the test rows). Starting R and reading are not timed.

arguments <- commandArgs(TRUE)
job <- arguments[1]
folder <- arguments[2]
rows_of <- function(name) {
  rows <- read.csv(file.path(folder, name))
  text <- vapply(rows, is.character, TRUE)
  rows[text] <- lapply(rows[text], factor)
  rows
}
timed <- function(fit) { # CPU seconds, of child processes too
  before <- proc.time()
  model <- fit()
  list(model = model, seconds = sum((proc.time() - before)[c(1, 2, 4, 5)]))
}

train <- rows_of("train.csv")
if (job == "insteval") {
  suppressMessages(library(lme4))
  train$s <- factor(train$s)
  train$d <- factor(train$d)
  fit <- timed(function() lmer(target ~ 1 + (1 | s) + (1 | d), train))
  parts <- as.data.frame(VarCorr(fit$model))
  figures <- setNames(parts$vcov, parts$grp)[c("s", "d", "Residual")]
} else if (job == "diamonds-by") {
  suppressMessages(library(mgcv))
  test <- rows_of("test.csv")
  for (name in c("cut", "color", "clarity")) test[[name]] <- factor(test[[name]], levels(train[[name]]))
  formula <- target ~ s(carat, k = 40) + s(carat, clarity, bs = "fs", k = 10) +
    s(carat, color, bs = "fs", k = 10) + s(depth, k = 20) + s(table, k = 20) +
    s(x, k = 40) + s(y, k = 40) + s(z, k = 20) +
    s(cut, bs = "re") + s(color, bs = "re") + s(clarity, bs = "re")
  fit <- timed(function() bam(formula, data = train, discrete = TRUE, nthreads = 1))
  mean <- predict(fit$model, test, discrete = FALSE)
  write.table(mean, file.path(folder, "mean.csv"), row.names = FALSE, col.names = FALSE)
  figures <- c(edf = sum(fit$model$edf))
} else {
  stop("there is no job ", job)
}
figures <- c(figures, seconds = fit$seconds)
write.table(figures, file.path(folder, "figures.csv"), sep = ",", quote = FALSE, col.names = FALSE)
